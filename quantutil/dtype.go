package quantutil

import (
	"encoding/binary"
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
	Int16
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
	Int16:    {"int16", 2},
	Int32:    {"int32", 4},
}

// ParseDType returns the type that String calls by that name.
func ParseDType(name string) (DType, bool) {
	for t, d := range dtypes {
		if d.name == name {
			return DType(t), true
		}
	}
	return 0, false
}

// String returns numpy's name of the type, such as float32.
func (t DType) String() string {
	if !t.valid() {
		return "unknown type"
	}
	return dtypes[t].name
}

// Size returns the bytes that one element takes.
func (t DType) Size() int { return dtypes[t].size }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool { return t <= Float64 }

func (t DType) valid() bool { return int(t) < len(dtypes) }

// Promote returns the type in which a and b are added, multiplied or divided:
// the smallest one that holds all values of both, where bfloat16 and float16
// meet in float32, 8-bit integers fit any float, and 16 bits need float32.
func Promote(a, b DType) DType {
	if b.IsFloat() {
		a, b = b, a
	}
	switch {
	case a == b:
		return a
	case a == Float64 || b == Float64:
		return Float64
	case a.IsFloat() && b.IsFloat():
		return Float32
	case a.IsFloat() && b == Int32:
		return Float64
	case a.IsFloat() && b == Int16:
		return Float32
	case a.IsFloat():
		return a
	case a == Int32 || b == Int32:
		return Int32
	}
	return Int16
}

// round returns the value of type t that a cast of x gives: for floats the
// nearest, ties to even; for integers x without its fraction, modulo their range.
func (t DType) round(x float64) float64 {
	switch t {
	case Float32:
		return float64(float32(x))
	case Float16:
		return float64(RoundFloat16(float32(x)))
	case BFloat16:
		return float64(RoundBFloat16(float32(x)))
	case Float64:
		return x
	}
	if math.IsNaN(x) {
		return 0
	}
	switch n := int64(x); t {
	case Int8:
		return float64(int8(n))
	case Uint8:
		return float64(uint8(n))
	case Int16:
		return float64(int16(n))
	default:
		return float64(int32(n))
	}
}

// appendBytes appends x, a value of type t, in little-endian order.
func (t DType) appendBytes(b []byte, x float64) []byte {
	switch t {
	case Float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	case Float16:
		return binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(float32(x)).Bits())
	case BFloat16:
		return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(x))>>16))
	case Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	case Int16:
		return binary.LittleEndian.AppendUint16(b, uint16(int16(x)))
	case Int32:
		return binary.LittleEndian.AppendUint32(b, uint32(int32(x)))
	}
	return append(b, byte(int64(x)))
}

// value reads one element of type t, the inverse of appendBytes.
func (t DType) value(b []byte) float64 {
	switch t {
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case Float16:
		return float64(float16.Frombits(binary.LittleEndian.Uint16(b)).Float32())
	case BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case Int8:
		return float64(int8(b[0]))
	case Int16:
		return float64(int16(binary.LittleEndian.Uint16(b)))
	case Int32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	}
	return float64(b[0])
}

// RoundFloat16 returns the float16 nearest to x, ties to even, as a float32.
// From 65520 on the result is infinite.
func RoundFloat16(x float32) float32 {
	return float16.Fromfloat32(x).Float32()
}

// RoundBFloat16 returns the bfloat16 nearest to x, ties to even, as a float32.
// From 2^128 - 2^119 on the result is infinite.
func RoundBFloat16(x float32) float32 {
	b := math.Float32bits(x)
	if b<<1 > 0xff<<24 { // NaN: keep it one
		return math.Float32frombits(b&0xffff0000 | 1<<22)
	}
	return math.Float32frombits((b + 0x7fff + b>>16&1) & 0xffff0000)
}
