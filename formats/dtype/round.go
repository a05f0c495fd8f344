package dtype

import (
	"math"

	"github.com/x448/float16"
)

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

// Round rounds x to t, which is a floating-point type, or 0 for Float32.
func (t DType) Round(x float32) float32 {
	switch t {
	case Float16:
		return RoundFloat16(x)
	case BFloat16:
		return RoundBFloat16(x)
	}
	return x
}

// RoundAll rounds each of x as Round does.
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

// fastRoundFloat16 is a faster RoundFloat16. It adds a number so large that the last bit of
// the sum is the last bit of a float16 near v.
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

// roundToOdd returns x if it is a float32, else the one of its two neighbors whose last bit
// is 1. Rounding that to fewer bits gives the same as rounding x.
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
