//go:build unix

package capi

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// PeakMemory returns the most memory that this process has had, in bytes; 0: unknown. Linux counts in
// getrusage that of the program which started this one, but not in VmHWM.
func PeakMemory() int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); err == nil {
				return n << 10
			}
		}
	}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" { // elsewhere in KiB
		return int64(u.Maxrss)
	}
	return int64(u.Maxrss) << 10
}
