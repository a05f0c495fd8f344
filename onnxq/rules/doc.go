// Package rules has settings for single weights, found by their names: [Precision], the
// overrides of a precision_info; [Names], the names of tensors in another file; and
// [Importance], an importance matrix.
//
// Each is loaded from a file, with errors that name the place, and is immutable afterwards.
package rules
