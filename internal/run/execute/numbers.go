package execute

import (
	"encoding/binary"
	"unsafe"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// Numbers returns the elements of a tensor whose type is T's, to be read only: they share the tensor's
// memory if possible.
func Numbers[T kernels.Fixed](t *Tensor) []T {
	if x := kernels.View[T](t.Data); x != nil || len(t.Data) == 0 {
		return x
	}
	x := make([]T, t.Len())
	if _, err := binary.Decode(t.Data, binary.LittleEndian, x); err != nil {
		panic(err) // sizes are right
	}
	return x
}

// Made makes a tensor of a type that is T's. It takes the elements over.
func Made[T kernels.Fixed](typ dtype.DType, dims []int64, x []T) *Tensor {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
	if len(x) > 0 && kernels.View[T](data) == nil { // a big-endian machine
		data, _ = binary.Append(nil, binary.LittleEndian, x)
	}
	return &Tensor{DType: typ, Dims: dims, Data: data}
}

// Unpack gives each of n elements of less than 8 bits a byte for itself. It returns others as they are.
func Unpack(typ dtype.DType, n int, raw []byte) []byte {
	bits := int(typ.Bits())
	if bits >= 8 {
		return raw
	}
	out := make([]byte, n)
	for i := range out {
		at, shift := i*bits/8, i*bits%8
		v := uint16(raw[at])
		if shift+bits > 8 {
			v |= uint16(raw[at+1]) << 8
		}
		out[i] = byte(v>>shift) & (1<<bits - 1)
		if typ.Signed() { // extends the sign
			out[i] = byte(int8(out[i]<<(8-bits)) >> (8 - bits))
		}
	}
	return out
}
