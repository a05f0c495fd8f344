package elementwise

import (
	"cmp"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// comparison is an operator that compares pairs of elements. holds maps the order of a
// pair, as of cmp.Compare, to the result; with NaN the result is false.
func comparison(holds func(order int) bool) op.Operator {
	return op.Operator{Inputs: 2, Run: func(c *op.Call) ([]*execute.Tensor, error) {
		a, b := c.In[0], c.In[1]
		if a.DType != b.DType {
			return nil, op.ErrTypes
		}
		dims, err := op.Broadcast(a.Dims, b.Dims)
		if err != nil {
			return nil, err
		}
		if err := c.Room(dtype.Bool, dims); err != nil {
			return nil, err
		}
		w := op.NewWalk(dims, op.Strides(dims), op.Spread(a.Dims, dims), op.Spread(b.Dims, dims))
		y := make([]uint8, op.Product(dims))
		switch {
		case a.DType == dtype.String:
			compare(w, y, a.Text, b.Text, holds)
		case a.DType == dtype.Uint64:
			compare(w, y, execute.Numbers[uint64](a), execute.Numbers[uint64](b), holds)
		case a.IsFloat():
			compare(w, y, a.Float64s(), b.Float64s(), holds)
		default:
			compare(w, y, a.Int64s(), b.Int64s(), holds)
		}
		return op.One(execute.Made(dtype.Bool, dims, y), nil)
	}}
}

func compare[T cmp.Ordered](w *op.Walk, y []uint8, a, b []T, holds func(order int) bool) {
	truth := [3]uint8{}
	for i := range truth {
		if holds(i - 1) {
			truth[i] = 1
		}
	}
	combine(w, y, a, b, func(a, b T) uint8 {
		if a != a || b != b {
			return 0
		}
		return truth[cmp.Compare(a, b)+1]
	})
}

func runWhere(c *op.Call) ([]*execute.Tensor, error) {
	condition, a, b := c.In[0], c.In[1], c.In[2]
	if a.DType != b.DType {
		return nil, op.ErrTypes
	}
	if condition.DType != dtype.Bool {
		return nil, op.BadType(condition)
	}
	dims, err := op.Broadcast(condition.Dims, a.Dims, b.Dims)
	if err != nil {
		return nil, err
	}
	if err := c.Room(a.DType, dims); err != nil {
		return nil, err
	}
	if b, err = c.View(b, dims, op.Spread(b.Dims, dims), 0); err != nil {
		return nil, err
	}
	if a, err = c.Expand(a, dims); err != nil {
		return nil, err
	}
	if condition, err = c.Expand(condition, dims); err != nil {
		return nil, err
	}
	size := b.Size()
	for i, v := range condition.Data {
		switch {
		case v == 0:
		case b.Text != nil:
			b.Text[i] = a.Text[i]
		default:
			copy(b.Data[i*size:(i+1)*size], a.Data[i*size:])
		}
	}
	return op.One(b, nil)
}
