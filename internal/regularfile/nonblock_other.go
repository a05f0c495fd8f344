//go:build !unix

package regularfile

// Nonblock is no flag here: pipes have names of their own.
const Nonblock = 0
