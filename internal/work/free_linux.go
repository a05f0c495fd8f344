package work

import (
	"math"
	"os"
	"strconv"
	"strings"
)

// Free is the memory, in bytes, that programs can still take, also from what the system uses for files; 0 if
// it is not known.
func Free() int64 {
	if free := min(freeInSystem(), freeInGroup()); free < math.MaxInt64 {
		return free
	}
	return 0
}

// freeInSystem returns the free memory of the system.
func freeInSystem() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

// freeInGroup returns the free memory of a container's control group.
func freeInGroup() int64 {
	limit, err := readNumber("/sys/fs/cgroup/memory.max")
	used, err2 := readNumber("/sys/fs/cgroup/memory.current")
	if err != nil || err2 != nil { // no such group, or no limit
		return math.MaxInt64
	}
	return max(limit-used, 0)
}

func readNumber(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
