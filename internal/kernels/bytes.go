package kernels

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// bigEndian reports whether this machine is big-endian; files are little-endian.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Bytes returns the memory of x, to read little-endian numbers into. FromFloat32 then
// converts them to the byte order of this machine.
func Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// Floats returns little-endian numbers as float32 in the same memory, or nil if that cannot be.
func Floats(b []byte) []float32 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if bigEndian || uintptr(p)%4 != 0 {
		return nil
	}
	return unsafe.Slice((*float32)(p), len(b)/4)
}

// Fixed are the types of numbers that files have.
type Fixed interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64
}

// View returns little-endian numbers in the same memory, or nil if that cannot be.
func View[T Fixed](b []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	p := unsafe.Pointer(unsafe.SliceData(b))
	if bigEndian && size > 1 || uintptr(p)%uintptr(size) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), len(b)/size)
}

// FromFloat32 converts little-endian numbers, read into Bytes of x, to this machine's byte
// order.
func FromFloat32(x []float32) {
	if !bigEndian {
		return
	}
	b := Bytes(x)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
}
