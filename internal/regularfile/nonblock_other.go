//go:build !unix

package regularfile

// Nonblock is not needed here: named pipes are not in the file system.
const Nonblock = 0
