package quantutil

import (
	"fmt"
	"math"

	"github.com/x448/float16"
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

// cast returns the value of type t that a cast of x from float64 gives. It differs
// from round, which takes results of operations, in rounding once to float16.
func (t DType) cast(x float64) float64 {
	if t == Float16 {
		return t.round(float64(roundToOdd(x)))
	}
	return t.round(x)
}

// roundToOdd returns x if it is a float32, else of the two neighbours the one
// whose last bit is 1. Rounded again to fewer bits that gives what x itself gives.
func roundToOdd(x float64) float32 {
	f := float32(x)
	b := math.Float32bits(f)
	if x != x || float64(f) == x || b&1 == 1 {
		return f
	}
	if math.Abs(float64(f)) > math.Abs(x) {
		return math.Float32frombits(b - 1)
	}
	return math.Float32frombits(b + 1)
}

// Round rounds x to t, a floating-point type.
func (t DType) Round(x float32) float32 {
	switch t {
	case Float16:
		return RoundFloat16(x)
	case BFloat16:
		return RoundBFloat16(x)
	}
	return x
}

// RoundAll rounds each of x to t, a floating-point type.
func (t DType) RoundAll(x []float32) {
	switch t {
	case Float16:
		for i, v := range x {
			x[i] = fastRoundFloat16(v)
		}
	case BFloat16:
		for i, v := range x {
			x[i] = RoundBFloat16(v)
		}
	}
}

// fastRoundFloat16 is RoundFloat16. It adds a number so large that the last bit of
// the sum is the last bit that a float16 near v has.
func fastRoundFloat16(v float32) float32 {
	const magnitude = 1<<31 - 1
	b := math.Float32bits(v)
	exponent := b & (0xff << 23)
	if exponent >= (127+15)<<23 { // may be infinite, or is NaN
		return RoundFloat16(v)
	}
	large := math.Float32frombits(max(exponent, (127-14)<<23) + 13<<23)
	sum := math.Float32frombits(b&magnitude) + large
	return math.Float32frombits(math.Float32bits(sum-large) | b&^magnitude)
}

// CheckWeightType reports a type that weights quantized as a stream, in pieces of
// float32, cannot have. They are Float32, Float16 or BFloat16.
func CheckWeightType(t DType) error {
	switch t {
	case Float32, Float16, BFloat16:
		return nil
	}
	return fmt.Errorf("weights of type %s: want float32, float16 or bfloat16", t)
}

// ScaleFor returns the scale, a number of type t that CheckWeightType accepts, by
// which top times the scale is as large as the largest magnitude amax of a block:
// amax/top rounded to nearest, ties to even, first in float32, then to t. It is 1
// if amax is 0.
//
// It is always a normal number, except of float16: there, what is below 2^-14 is
// rounded up to the next multiple of 2^-24. It is lowered by one place if top
// times the scale, rounded to t, would be infinite. amax is finite.
func ScaleFor(t DType, amax, top float32) float32 {
	if amax == 0 {
		return 1
	}
	s := amax / top
	ulp := uint32(1)
	switch t {
	case Float16:
		ulp = 1 << 13
		if s < 0x1p-14 {
			s = float32(math.Ceil(float64(amax)/float64(top)*0x1p24) * 0x1p-24)
		}
		s = RoundFloat16(s)
	case BFloat16:
		ulp = 1 << 16
		s = max(RoundBFloat16(s), 0x1p-126)
	default:
		s = max(s, 0x1p-126)
	}
	if y := top * s; y >= 0x1p15 && math.IsInf(float64(t.Round(y)), 0) { // less is finite in every type
		s = math.Float32frombits(math.Float32bits(s) - ulp)
	}
	return s
}
