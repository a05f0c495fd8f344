package main

import (
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// limitMemory limits the memory of this process to nine tenths of the free memory. A model that needs
// more then fails with an error. Without the limit, the system would end processes until enough is free.
func limitMemory() {
	free := min(freeInSystem(), freeInGroup())
	if free == math.MaxInt64 {
		return
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(rlimitData, &limit) == nil && uint64(free/10*9) < limit.Cur {
		limit.Cur = uint64(free / 10 * 9)
		syscall.Setrlimit(rlimitData, &limit) // if this fails, there is no limit, as on other systems
	}
}

const rlimitData = 2 // RLIMIT_DATA: memory that can be written and is not shared

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
