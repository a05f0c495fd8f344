//go:build !linux

package work

import "github.com/pbnjay/memory"

// Free is the memory, in bytes, that programs can still take; 0 if it is not known.
func Free() int64 { return int64(memory.FreeMemory()) }
