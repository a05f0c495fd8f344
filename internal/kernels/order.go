package kernels

import "math"

// Ordered maps numbers to integers in the same order. -0 maps to the same integer as 0.
func Ordered(x float32) uint32 {
	b := math.Float32bits(x + 0)
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// FromOrdered is the inverse of Ordered.
func FromOrdered(u uint32) float32 {
	if u>>31 != 0 {
		return math.Float32frombits(u &^ (1 << 31))
	}
	return math.Float32frombits(^u)
}
