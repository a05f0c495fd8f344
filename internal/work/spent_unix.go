//go:build unix

package work

import (
	"syscall"
	"time"
)

// Spent is the processor time of this process so far; 0: unknown.
func Spent() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
