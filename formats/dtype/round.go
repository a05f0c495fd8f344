package dtype

import (
	"math"

	"github.com/x448/float16"

	"onnxquant/internal/kernels"
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

// RoundAll rounds each of x like Round, except that a signaling NaN may keep other bits.
func (t DType) RoundAll(x []float32) {
	switch t {
	case Float16:
		var halves [2 * roundPiece]byte
		for len(x) > 0 {
			n := min(len(x), roundPiece)
			kernels.ToFloat16(halves[:], x[:n])
			kernels.FromFloat16(x[:n], halves[:])
			x = x[n:]
		}
	case BFloat16:
		for i, v := range x {
			x[i] = RoundBFloat16(v)
		}
	}
}

// roundPiece is how many elements RoundAll converts at a time.
const roundPiece = 256

// roundToOdd returns x if it is a float32, else the neighbor whose last bit is 1. Rounding that to
// fewer bits gives the same as rounding x directly.
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
