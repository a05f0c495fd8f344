package operands

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Chosen is a product with matrices that a Gather takes out of a stack of N, such as those of experts. Each matrix of the stack is a
// part, and gets the rows that meet it in the product. The second value has the indices of the matrices.
type Chosen struct {
	N, Width    int  // matrices, and elements of a row
	Columns     bool // the rows are columns of the input: the matrices are the first factor
	Coordinates bool // GatherND: the last axis of the indices has one element
}

// Parts is the number of matrices.
func (c Chosen) Parts() int { return c.N }

// Part implements Routed.
func (c Chosen) Part() string { return "matrix" }

// Kept is 0: no other weight is needed.
func (c Chosen) Kept() int64 { return 0 }

// All implements Routed.
func (c Chosen) All(input, indices Value) float64 {
	l, err := c.lay(input, indices)
	if err != nil {
		return 0
	}
	return float64(l.count) * float64(l.height)
}

// Begin implements Routed.
func (c Chosen) Begin() Routes { return &choices{Chosen: c} }

// laid says how matrices of the input meet indices, whose axes are broadcast.
type laid struct {
	dims, input, index []int64 // the axes of both, and what a step along one is in each
	count              int64   // of products
	height             int     // rows of a matrix of the input
}

func (c Chosen) lay(input, indices Value) (l laid, err error) {
	d, at := input.Dims, indices.Dims
	misfit := fmt.Errorf("its dims %v and those of its indices, %v, do not fit %d matrices with rows of %d", d, at, c.N, c.Width)
	if c.Coordinates {
		if len(at) == 0 || at[len(at)-1] != 1 {
			return l, misfit
		}
		at = at[:len(at)-1]
	}
	switch n := len(d); {
	case n == 1 && d[0] == int64(c.Width):
		l.height, d = 1, nil
	case n > 1 && c.Columns && d[n-2] == int64(c.Width):
		l.height, d = int(d[n-1]), d[:n-2]
	case n > 1 && !c.Columns && d[n-1] == int64(c.Width):
		l.height, d = int(d[n-2]), d[:n-2]
	default:
		return l, misfit
	}
	rank := max(len(d), len(at))
	d = append(slices.Repeat([]int64{1}, rank-len(d)), d...)
	at = append(slices.Repeat([]int64{1}, rank-len(at)), at...)
	l.dims, l.input, l.index, l.count = make([]int64, rank), make([]int64, rank), make([]int64, rank), 1
	inputs, indexes := int64(1), int64(1)
	for i := rank - 1; i >= 0; i-- {
		switch {
		case d[i] == at[i]:
			l.input[i], l.index[i] = inputs, indexes
		case d[i] == 1:
			l.index[i] = indexes
		case at[i] == 1:
			l.input[i] = inputs
		default:
			return l, misfit
		}
		l.dims[i] = max(d[i], at[i])
		if d[i] == 0 || at[i] == 0 {
			l.dims[i] = 0
		}
		inputs, indexes, l.count = inputs*d[i], indexes*at[i], l.count*l.dims[i]
	}
	return l, nil
}

// places returns which matrix of the input, and which index, product i has.
func (l laid) places(i int64) (input, index int64) {
	for axis, n := range slices.Backward(l.dims) {
		input, index = input+i%n*l.input[axis], index+i%n*l.index[axis]
		i /= n
	}
	return input, index
}

// choices are the rows of Chosen.
type choices struct {
	Chosen
	laid
	input  Value
	chosen [][]int64 // products, by matrix
	rows   []float32
	at     []int
}

func (c *choices) Take(input, indices Value) (err error) {
	if c.laid, err = c.lay(input, indices); err != nil {
		return err
	}
	if err := input.whole(); err != nil {
		return err
	}
	c.input, c.chosen = input, make([][]int64, c.N)
	for i := range c.count {
		_, index := c.places(i)
		if index >= int64(len(indices.Data)) {
			return fmt.Errorf("its indices have %d elements, not %v", len(indices.Data), indices.Dims)
		}
		e := float64(indices.Data[index])
		if e < 0 {
			e += float64(c.N)
		}
		if e != math.Trunc(e) || e < 0 || e >= float64(c.N) {
			return fmt.Errorf("index %v is none of %d matrices", indices.Data[index], c.N)
		}
		c.chosen[int(e)] = append(c.chosen[int(e)], i)
	}
	return nil
}

func (c *choices) Of(_ context.Context, _, part int) (rows []float32, at []int, err error) {
	c.rows, c.at = c.rows[:0], c.at[:0]
	for _, i := range c.chosen[part] {
		matrix, _ := c.places(i)
		from := c.input.Data[int(matrix)*c.height*c.Width:][:c.height*c.Width]
		for r := range c.height {
			c.at = append(c.at, int(i)*c.height+r)
			if !c.Columns {
				c.rows = append(c.rows, from[r*c.Width:][:c.Width]...)
				continue
			}
			for k := range c.Width {
				c.rows = append(c.rows, from[k*c.height+r])
			}
		}
	}
	return c.rows, c.at, nil
}
