package quantutil

import (
	"math"

	"github.com/x448/float16"
)

// DType is the type of a tensor's elements.
type DType uint8

// The types that the routines read or write. The zero DType is Float32.
const (
	Float32 DType = iota
	Float16
	BFloat16
	Float64
	Int8
	Uint8
	Int32
)

var dtypes = [...]struct {
	name string
	size int
}{
	Float32:  {"float32", 4},
	Float16:  {"float16", 2},
	BFloat16: {"bfloat16", 2},
	Float64:  {"float64", 8},
	Int8:     {"int8", 1},
	Uint8:    {"uint8", 1},
	Int32:    {"int32", 4},
}

// ParseDType returns the type of that name: float32, float16, bfloat16,
// float64, int8, uint8 or int32.
func ParseDType(name string) (DType, bool) {
	for t, d := range dtypes {
		if d.name == name {
			return DType(t), true
		}
	}
	return 0, false
}

// String returns the name of the type.
func (t DType) String() string { return dtypes[t].name }

// Size returns the bytes that one element takes.
func (t DType) Size() int { return dtypes[t].size }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool { return t <= Float64 }

// RoundFloat16 returns the float16 nearest to x, ties to even, as a float32.
// From 65520 on the result is infinite.
func RoundFloat16(x float32) float32 {
	return float16.Fromfloat32(x).Float32()
}

// RoundBFloat16 returns the bfloat16 nearest to x, ties to even, as a float32.
func RoundBFloat16(x float32) float32 {
	b := math.Float32bits(x)
	if b<<1 > 0xff<<24 { // NaN: keep it one
		return math.Float32frombits(b&0xffff0000 | 1<<22)
	}
	return math.Float32frombits((b + 0x7fff + b>>16&1) & 0xffff0000)
}
