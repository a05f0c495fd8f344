//go:build unix

package regularfile

import "syscall"

// Nonblock is the flag that keeps the opening of a pipe from waiting for its writer.
const Nonblock = syscall.O_NONBLOCK
