package quantutil

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"

	"onnxquant/formats/dtype"
)

// names are numpy's of the types that the routines read or write.
var names = map[dtype.DType]string{
	dtype.Float32:  "float32",
	dtype.Float16:  "float16",
	dtype.BFloat16: "bfloat16",
	dtype.Float64:  "float64",
	dtype.Int8:     "int8",
	dtype.Uint8:    "uint8",
	dtype.Int16:    "int16",
	dtype.Int32:    "int32",
}

// ParseDType returns the type that TypeName calls by that name.
func ParseDType(name string) (dtype.DType, bool) {
	for t, n := range names {
		if n == name {
			return t, true
		}
	}
	return 0, false
}

// TypeName returns numpy's name of a type that the routines know, such as float32, and
// ONNX's of others.
func TypeName(t dtype.DType) string {
	if name, ok := names[t]; ok {
		return name
	}
	return t.String()
}

func valid(t dtype.DType) bool { return names[t] != "" }

// size returns the bytes that one element takes.
func size(t dtype.DType) int { return int(t.Bits() / 8) }

// Promote returns the type in which a and b are added, multiplied or divided:
// the smallest one that holds all values of both, where bfloat16 and float16
// meet in float32, 8-bit integers fit any float, and 16 bits need float32.
func Promote(a, b dtype.DType) dtype.DType {
	if b.Float() {
		a, b = b, a
	}
	switch {
	case a == b:
		return a
	case a == dtype.Float64 || b == dtype.Float64:
		return dtype.Float64
	case a.Float() && b.Float():
		return dtype.Float32
	case a.Float() && b == dtype.Int32:
		return dtype.Float64
	case a.Float() && b == dtype.Int16:
		return dtype.Float32
	case a.Float():
		return a
	case a == dtype.Int32 || b == dtype.Int32:
		return dtype.Int32
	}
	return dtype.Int16
}

// round returns the value of type t that a cast of x gives: for floats the
// nearest, ties to even; for integers x without its fraction, modulo their range.
func round(t dtype.DType, x float64) float64 {
	switch t {
	case dtype.Float32:
		return float64(float32(x))
	case dtype.Float16:
		return float64(dtype.RoundFloat16(float32(x)))
	case dtype.BFloat16:
		return float64(dtype.RoundBFloat16(float32(x)))
	case dtype.Float64:
		return x
	}
	if math.IsNaN(x) {
		return 0
	}
	switch n := int64(x); t {
	case dtype.Int8:
		return float64(int8(n))
	case dtype.Uint8:
		return float64(uint8(n))
	case dtype.Int16:
		return float64(int16(n))
	default:
		return float64(int32(n))
	}
}

// cast returns the value of type t that a cast of x from float64 gives. It differs
// from round, which takes results of operations, in rounding once to float16.
func cast(t dtype.DType, x float64) float64 {
	if t == dtype.Float16 {
		return float64(float16.Frombits(dtype.Float16BitsFromFloat64(x)).Float32())
	}
	return round(t, x)
}

// appendBytes appends x, a value of type t, in little-endian order.
func appendBytes(t dtype.DType, b []byte, x float64) []byte {
	switch t {
	case dtype.Float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	case dtype.Float16:
		return binary.LittleEndian.AppendUint16(b, float16.Fromfloat32(float32(x)).Bits())
	case dtype.BFloat16:
		return binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(x))>>16))
	case dtype.Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	case dtype.Int16:
		return binary.LittleEndian.AppendUint16(b, uint16(int16(x)))
	case dtype.Int32:
		return binary.LittleEndian.AppendUint32(b, uint32(int32(x)))
	}
	return append(b, byte(int64(x)))
}

// value reads one element of type t, the inverse of appendBytes.
func value(t dtype.DType, b []byte) float64 {
	switch t {
	case dtype.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case dtype.Float16:
		return float64(float16.Frombits(binary.LittleEndian.Uint16(b)).Float32())
	case dtype.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case dtype.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case dtype.Int8:
		return float64(int8(b[0]))
	case dtype.Int16:
		return float64(int16(binary.LittleEndian.Uint16(b)))
	case dtype.Int32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	}
	return float64(b[0])
}
