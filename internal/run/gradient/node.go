package gradient

import (
	"slices"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// node is a node whose inputs get gradients. Gradients are float32, in the layout of the values.
type node struct {
	*op.Call
	out   []*execute.Tensor // nil for outputs that are not known
	dy    [][]float32       // gradients of the outputs; nil: 0
	wants []bool            // inputs that need a gradient
	dx    [][]float32       // gradients of the inputs, set by a rule; nil: 0
}

// rule sets the gradients of a node's inputs.
type rule func(n *node) error

// x returns the elements of an input, to be read only.
func (n *node) x(i int) []float32 { return op.Floats(n.In[i]) }

// y returns the elements of an output, to be read only.
func (n *node) y(i int) []float32 { return op.Floats(n.out[i]) }

// wanted reports whether there is an input i that needs a gradient.
func (n *node) wanted(i int) bool { return i < len(n.wants) && n.wants[i] }

// room makes the gradient of an input, zeros, if it is wanted; else it returns nil.
func (n *node) room(i int) []float32 {
	if !n.wanted(i) {
		return nil
	}
	n.dx[i] = make([]float32, n.In[i].Len())
	return n.dx[i]
}

// shares reports whether the gradient of input i is in the memory of another one.
func (n *node) shares(i int) bool {
	x := n.dx[i]
	return slices.ContainsFunc(slices.Concat(n.dy, n.dx[:i]), func(y []float32) bool {
		return len(x) > 0 && len(y) > 0 && &x[0] == &y[0]
	})
}

// reduce sums g, which has dims from, to the dims that were broadcast to it.
func reduce(g []float32, from, to []int64) []float32 {
	if slices.Equal(from, to) {
		return g
	}
	sum := make([]float32, op.Product(to))
	if len(sum) == len(g) {
		copy(sum, g)
		return sum
	}
	w := op.NewWalk(from, op.Strides(from), op.Spread(to, from))
	a, b := w.Step(0), w.Step(1)
	w.Runs(func(at []int, count int) {
		i, j := at[0], at[1]
		if b == 0 {
			total := float32(0)
			for range count {
				total += g[i]
				i += a
			}
			sum[j] += total
			return
		}
		for range count {
			sum[j] += g[i]
			i, j = i+a, j+b
		}
	})
	return sum
}

// expand repeats x, which has dims from, to larger dims.
func expand(x []float32, from, to []int64) []float32 {
	if int64(len(x)) == op.Product(to) {
		return x
	}
	y := make([]float32, op.Product(to))
	w := op.NewWalk(to, op.Strides(to), op.Spread(from, to))
	a, b := w.Step(0), w.Step(1)
	w.Runs(func(at []int, count int) {
		i, j := at[0], at[1]
		for range count {
			y[i] = x[j]
			i, j = i+a, j+b
		}
	})
	return y
}
