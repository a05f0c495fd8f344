// Package cli is the framework of the command: it parses command lines, and prints help, manual pages,
// completions, progress, tables and summaries.
//
// What goes in is an [App]: a list of commands, each with its flags and what runs it, and tables of hints.
// [App.Run] takes the arguments of the process and returns its exit status. A command gets a [Console], to
// which all of its output goes. The package knows neither models nor formats.
package cli
