// Package shapes computes shapes of tensors. It never changes a shape that it gets.
package shapes

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
)

// MaxRank bounds the number of axes, against hostile models.
const MaxRank = 64

// Reshape returns the result of ONNX's Reshape for a tensor of shape from. In want, -1 is the
// remaining length, and 0 the old length unless allowZero.
func Reshape(want, from []int64, allowZero bool) (shape []int64, ok bool) {
	shape = slices.Clone(want)
	known, free := int64(1), -1
	for i, d := range shape {
		switch {
		case d == 0 && !allowZero:
			if i >= len(from) {
				return nil, false
			}
			shape[i] = from[i]
		case d == -1 && free < 0:
			free = i
			continue
		case d < 0:
			return nil, false
		}
		known *= max(shape[i], 1)
		if known > math.MaxInt32*int64(math.MaxInt16) {
			return nil, false
		}
	}
	size, _ := dtype.Elements(from)
	if free >= 0 {
		if size%known != 0 {
			return nil, false
		}
		shape[free] = size / known
	}
	n, err := dtype.Elements(shape)
	return shape, err == nil && n == size
}

// Count returns the number of elements. The shape must have been checked for overflow.
func Count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// DivideUp returns ⌈a/b⌉ of a number that is not negative. It does not overflow: a model may have any block size.
func DivideUp(a, b int64) int64 {
	n := a / b
	if a%b != 0 {
		n++
	}
	return n
}

// Axis converts a negative axis, which counts from the end. It does not check the range.
func Axis(axis int64, rank int) int64 {
	if axis < 0 {
		return axis + int64(rank)
	}
	return axis
}
