package buffer

import (
	"syscall"
	"unsafe"
)

const (
	hugePage = 2 << 20
	advised  = 1 << 20 // least size of a slice with huge pages
)

// advise makes a slice, and asks for huge pages: with small ones, walking the tables of pages takes a part of the
// time in which a tile is read and encoded. A system that has none leaves it as it is.
func advise[T any](n int64) []T {
	size := int64(unsafe.Sizeof(*new(T)))
	if n*size < advised {
		return make([]T, n)
	}
	full := (n*size + hugePage - 1) / hugePage * hugePage
	whole := make([]T, (full+hugePage)/size+1) // in which a huge page begins, whatever its address
	past := int64(uintptr(unsafe.Pointer(&whole[0])) % hugePage)
	if past%size != 0 {
		return whole[:n]
	}
	s := whole[(hugePage-past)%hugePage/size:]
	_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), full), syscall.MADV_HUGEPAGE)
	return s[:n]
}
