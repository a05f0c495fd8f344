package op

import (
	"fmt"
	"slices"

	"onnxquant/internal/run/execute"
)

// Axis checks an axis of a tensor of the given rank. A negative one counts from the last.
func Axis(a int64, rank int) (int, error) {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d of a tensor with %d dimensions", a, rank)
	}
	return int(a), nil
}

// Axes marks the listed axes of a tensor of the given rank.
func Axes(list []int64, rank int) ([]bool, error) {
	marks := make([]bool, rank)
	for _, a := range list {
		i, err := Axis(a, rank)
		if err != nil {
			return nil, err
		}
		marks[i] = true
	}
	return marks, nil
}

// Product multiplies dimensions.
func Product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// Sizes returns the product of the dims before an axis, that of the axis, and the product of those after it.
func Sizes(dims []int64, axis int) (outer, n, inner int) {
	return int(Product(dims[:axis])), int(dims[axis]), int(Product(dims[axis+1:]))
}

// Reshaped returns t with new dims. It shares the elements.
func Reshaped(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if Product(dims) != int64(t.Len()) {
		return nil, fmt.Errorf("%d elements do not fit dims %v", t.Len(), dims)
	}
	return &execute.Tensor{DType: t.DType, Dims: dims, Data: t.Data, Text: t.Text}, nil
}

// Strides returns the distance of neighbours along each axis, in elements.
func Strides(dims []int64) []int64 {
	s := make([]int64, len(dims))
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

// Broadcast returns the common shape of tensors with the given shapes.
func Broadcast(shapes ...[]int64) ([]int64, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	dims := slices.Repeat([]int64{1}, rank)
	for _, s := range shapes {
		for i, d := range s {
			k := rank - len(s) + i
			if dims[k] != 1 && d != 1 && d != dims[k] {
				return nil, fmt.Errorf("cannot broadcast shapes %v", shapes)
			}
			if dims[k] == 1 {
				dims[k] = d
			}
		}
	}
	return dims, nil
}

// Spread returns the strides of a tensor that is broadcast to dims: 0 where elements repeat.
func Spread(from, dims []int64) []int64 {
	steps := make([]int64, len(dims))
	lead := len(dims) - len(from)
	for i, s := range Strides(from) {
		if from[i] != 1 {
			steps[lead+i] = s
		}
	}
	return steps
}

// Without returns dims without the marked ones, or with 1 in their place.
func Without(dims []int64, marks []bool, keep bool) []int64 {
	rest := []int64{}
	for i, d := range dims {
		switch {
		case !marks[i]:
			rest = append(rest, d)
		case keep:
			rest = append(rest, 1)
		}
	}
	return rest
}
