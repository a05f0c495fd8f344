// Package dtype has the element types of ONNX tensors: their names, sizes and ranges, the rounding of
// floats to them, and the encoding of floats as bytes.
//
//	raw := make([]byte, dtype.Float16.Bytes(2))
//	dtype.Float16.Encode(raw, []float32{1, -2}) // 00 3c 00 c0
//
// A [DType] is a plain number. The caller owns all slices.
package dtype

import (
	"fmt"
	"math"
)

// DType is the type of a tensor's elements, numbered like ONNX's TensorProto.DataType. The
// zero DType is no type; codecs treat it as Float32.
type DType int32

// The types of ONNX.
const (
	Float32        DType = 1
	Uint8          DType = 2
	Int8           DType = 3
	Uint16         DType = 4
	Int16          DType = 5
	Int32          DType = 6
	Int64          DType = 7
	String         DType = 8
	Bool           DType = 9
	Float16        DType = 10
	Float64        DType = 11
	Uint32         DType = 12
	Uint64         DType = 13
	Complex64      DType = 14
	Complex128     DType = 15
	BFloat16       DType = 16
	Float8E4M3FN   DType = 17
	Float8E4M3FNUZ DType = 18
	Float8E5M2     DType = 19
	Float8E5M2FNUZ DType = 20
	Uint4          DType = 21
	Int4           DType = 22
	Float4E2M1     DType = 23
	Float8E8M0     DType = 24
	Uint2          DType = 25
	Int2           DType = 26
	Float6E2M3     DType = 27
	Float6E3M2     DType = 28
)

type kind uint8

const (
	other kind = iota
	signed
	unsigned
	wide // floats of at least 16 bits
)

// types gives the name of each type and the bits that an element takes in raw_data.
var types = [...]struct {
	name string
	bits int64
	kind kind
}{
	0:              {"UNDEFINED", 0, other},
	Float32:        {"FLOAT", 32, wide},
	Uint8:          {"UINT8", 8, unsigned},
	Int8:           {"INT8", 8, signed},
	Uint16:         {"UINT16", 16, unsigned},
	Int16:          {"INT16", 16, signed},
	Int32:          {"INT32", 32, signed},
	Int64:          {"INT64", 64, signed},
	String:         {"STRING", 0, other},
	Bool:           {"BOOL", 8, other},
	Float16:        {"FLOAT16", 16, wide},
	Float64:        {"DOUBLE", 64, wide},
	Uint32:         {"UINT32", 32, unsigned},
	Uint64:         {"UINT64", 64, unsigned},
	Complex64:      {"COMPLEX64", 64, other},
	Complex128:     {"COMPLEX128", 128, other},
	BFloat16:       {"BFLOAT16", 16, wide},
	Float8E4M3FN:   {"FLOAT8E4M3FN", 8, other},
	Float8E4M3FNUZ: {"FLOAT8E4M3FNUZ", 8, other},
	Float8E5M2:     {"FLOAT8E5M2", 8, other},
	Float8E5M2FNUZ: {"FLOAT8E5M2FNUZ", 8, other},
	Uint4:          {"UINT4", 4, unsigned},
	Int4:           {"INT4", 4, signed},
	Float4E2M1:     {"FLOAT4E2M1", 4, other},
	Float8E8M0:     {"FLOAT8E8M0", 8, other},
	Uint2:          {"UINT2", 2, unsigned},
	Int2:           {"INT2", 2, signed},
	Float6E2M3:     {"FLOAT6E2M3", 6, other},
	Float6E3M2:     {"FLOAT6E3M2", 6, other},
}

func (t DType) valid() bool { return t >= 0 && int(t) < len(types) }

func (t DType) kind() kind {
	if !t.valid() {
		return other
	}
	return types[t].kind
}

// String returns ONNX's name of the type, such as FLOAT16.
func (t DType) String() string {
	if !t.valid() {
		return fmt.Sprintf("type %d", int32(t))
	}
	return types[t].name
}

// Float reports whether weights of the type can be quantized: Float32, Float16, BFloat16 or
// Float64.
func (t DType) Float() bool { return t.kind() == wide }

// Integer reports whether the type is an integer type.
func (t DType) Integer() bool { return t.kind() == signed || t.kind() == unsigned }

// Signed reports whether the type is a signed integer type.
func (t DType) Signed() bool { return t.kind() == signed }

// Limits returns the smallest and the largest number of an integer type; 0 and 0 for others.
func (t DType) Limits() (lo int64, hi uint64) {
	bits := t.Bits()
	switch t.kind() {
	case signed:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case unsigned:
		return 0, math.MaxUint64 >> (64 - bits)
	}
	return 0, 0
}

// opsets gives the first opset in which DequantizeLinear or Cast takes a type.
var opsets = map[DType]int64{
	Float16:      19,
	BFloat16:     19,
	Float8E4M3FN: 19,
	Float8E5M2:   19,
	Int4:         21,
	Uint4:        21,
	Float4E2M1:   23,
	Float8E8M0:   24,
	Int2:         25,
	Uint2:        25,
	Float6E2M3:   28,
	Float6E3M2:   28,
}

// Opset returns the first opset of ONNX in which DequantizeLinear or Cast takes the type; 0 for
// types that they always took.
func (t DType) Opset() int64 { return opsets[t] }

// Bits returns the size of an element in bits, 0 for types of no fixed size.
func (t DType) Bits() int64 {
	if !t.valid() {
		return 0
	}
	return types[t].bits
}

// Bytes returns the size of n elements, packed.
func (t DType) Bytes(n int64) int64 {
	bits := t.Bits()
	if bits >= 8 {
		return n * (bits / 8)
	}
	if bits == 6 { // a stream of bits, four elements in three bytes
		return n/4*3 + (n%4*6+7)/8
	}
	per := 8 / max(bits, 1) // elements per byte
	return n/per + (n%per+per-1)/per
}

// Elements multiplies the dimensions of a tensor. It fails if a dimension is negative or the size in
// bytes overflows int64.
func Elements(dims []int64) (int64, error) {
	n := int64(1)
	for _, d := range dims {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension %d", d)
		}
		if d == 0 {
			n = 0
		}
	}
	for _, d := range dims {
		if n == 0 {
			break
		}
		if d > math.MaxInt64/16/n {
			return 0, fmt.Errorf("the product of the dimensions overflows")
		}
		n *= d
	}
	return n, nil
}
