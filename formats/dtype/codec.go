package dtype

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/x448/float16"

	"onnxquant/internal/kernels"
)

// Float16Bits returns the float16 nearest to x, ties to even. From 65520 on it is
// infinite. A NaN keeps its sign and the highest bits of its payload, or has the
// payload 1 if they are 0.
func Float16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16&0x8000|0x7c00) | max(uint16(b>>13&0x3ff), 1)
	}
	return float16.Fromfloat32(x).Bits()
}

// Float16BitsFromFloat64 is Float16Bits for a float64. It rounds once: x does not
// become a float32 on the way.
func Float16BitsFromFloat64(x float64) uint16 {
	return Float16Bits(roundToOdd(x))
}

// BFloat16Bits returns the bfloat16 nearest to x, ties to even. From
// 2^128 - 2^119 on it is infinite. A NaN becomes the quiet one without payload,
// with its sign.
func BFloat16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16&0x8000 | 0x7fc0)
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// Decode decodes len(x) little-endian floats of type t from raw. A Float64 beyond float32
// becomes infinite. raw may be the end of the memory of x, if it is no longer.
func (t DType) Decode(x []float32, raw []byte) {
	raw = raw[:t.floatBytes(len(x))]
	switch t {
	case Float32:
		copy(kernels.Bytes(x), raw)
		kernels.FromFloat32(x)
	case Float16:
		kernels.FromFloat16(x, raw)
	case BFloat16:
		kernels.FromBFloat16(x, raw)
	case Float64:
		for i := range x {
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	}
}

// Encode encodes x as little-endian floats of type t, rounded like Float16Bits and
// BFloat16Bits. raw must have room for all.
func (t DType) Encode(raw []byte, x []float32) {
	raw = raw[:t.floatBytes(len(x))]
	switch t {
	case Float32:
		if to := kernels.Floats(raw); to != nil {
			copy(to, x)
			return
		}
		for i, v := range x {
			binary.LittleEndian.PutUint32(raw[4*i:], math.Float32bits(v))
		}
	case Float16:
		kernels.ToFloat16(raw, x)
	case BFloat16:
		kernels.ToBFloat16(raw, x)
	case Float64:
		for i, v := range x {
			binary.LittleEndian.PutUint64(raw[8*i:], math.Float64bits(float64(v)))
		}
	}
}

// floatBytes returns the bytes of n elements of a floating-point type.
func (t DType) floatBytes(n int) int {
	if !t.Float() {
		panic(fmt.Sprintf("dtype: no floats of type %v", t))
	}
	return int(t.Bits()/8) * n
}
