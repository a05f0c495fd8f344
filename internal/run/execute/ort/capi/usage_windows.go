package capi

import (
	"time"

	"golang.org/x/sys/windows"
)

// processTime returns the CPU time of this process so far.
func processTime() time.Duration {
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user) != nil {
		return 0
	}
	ticks := func(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) } // of 100 ns
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}

// PeakMemory returns 0: it is unknown on this system.
func PeakMemory() int64 { return 0 }
