// Package summary puts into words what the commands found, for people: facts with labels, and tables, of plans,
// conversions, analyses, models and comparisons. It takes finished results and decides nothing. Names
// from models are made printable, and lists are cut to the length of a screen.
package summary
