package main

import (
	"syscall"

	"onnxquant/internal/work"
)

// limitMemory limits the memory of this process to nine tenths of the free memory. A model that needs
// more then fails with an error. Without the limit, the system would end processes until enough is free.
func limitMemory() {
	free := work.Free()
	if free == 0 {
		return
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(rlimitData, &limit) == nil && uint64(free/10*9) < limit.Cur {
		limit.Cur = uint64(free / 10 * 9)
		syscall.Setrlimit(rlimitData, &limit) // if this fails, there is no limit, as on other systems
	}
}

const rlimitData = 2 // RLIMIT_DATA: memory that can be written and is not shared
