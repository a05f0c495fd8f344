package shapes

import (
	"math"
	"onnxquant/formats/dtype"
	"slices"
)

// MaxRank is more axes than any tensor here has.
const MaxRank = 64

// Reshape returns the shape that a Reshape gives to a tensor of shape from: -1
// stands for the rest, and 0 for the old length unless allowZero.
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

// Count multiplies the dimensions of a tensor that has been checked.
func Count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

func DivideUp(a, b int64) int64 { return (a + b - 1) / b }

// Axis turns an axis that may count from the end into one that does not.
func Axis(axis int64, rank int) int64 {
	if axis < 0 {
		return axis + int64(rank)
	}
	return axis
}
