// Package commit puts finished files in place together: a model and its external data, or a whole
// folder.
//
// [Create] returns a [Target], and [CreateFolder] a [Folder]. The caller owns it, writes to its
// temporary files and calls Commit or Abort. The target is locked meanwhile. The lock file is also a
// journal of the files to remove after a crash. At any moment the files in place are complete, old or
// new. Package commit never replaces a file of the input, or external data that another model uses.
package commit
