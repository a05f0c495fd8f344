// Package commit puts finished files in place: a model and its external data, or a
// whole folder, together.
//
// A [Target] is written to temporary files beside it. It is locked meanwhile, and the
// lock file is a journal of what may have to be removed after a crash. At any moment
// what is in place is complete, old or new. It never replaces a file of the input, or
// external data that another model uses.
package commit
