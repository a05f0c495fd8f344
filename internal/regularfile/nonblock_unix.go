//go:build unix

package regularfile

import "syscall"

// Nonblock keeps os.OpenFile from waiting for the writer of a pipe.
const Nonblock = syscall.O_NONBLOCK
