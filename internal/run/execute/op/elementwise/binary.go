package elementwise

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// binary is an operator on pairs of numbers, by their types. Those that are nil are not supported.
type binary struct {
	single   func(y, a, b []float32) // of slices of the same length; nil: by double
	double   func(a, b float64) float64
	whole    func(a, b int64) int64
	unsigned func(a, b uint64) uint64 // nil: whole
}

// operator is the operator with exactly two inputs.
func (k binary) operator() op.Operator {
	return op.Operator{Inputs: 2, Run: func(c *op.Call) ([]*execute.Tensor, error) {
		if len(c.In) != 2 {
			return nil, op.Unsupported("%d inputs", len(c.In))
		}
		return op.One(k.apply(c, c.In[0], c.In[1]))
	}}
}

// apply broadcasts two tensors of the same type.
func (k binary) apply(c *op.Call, a, b *execute.Tensor) (*execute.Tensor, error) {
	if a.DType != b.DType {
		return nil, op.ErrTypes
	}
	dims, err := op.Broadcast(a.Dims, b.Dims)
	if err != nil {
		return nil, err
	}
	if err := c.Room(a.DType, dims); err != nil {
		return nil, err
	}
	if c.Arithmetic() != nil && simple[c.Node.GetOpType()] && a.IsFloat() && op.Product(dims) > 0 {
		return otherEngine(c, dims, a, b)
	}
	w := op.NewWalk(dims, op.Strides(dims), op.Spread(a.Dims, dims), op.Spread(b.Dims, dims))
	n := op.Product(dims)
	switch {
	case a.IsFloat() && a.DType != dtype.Float64 && k.single != nil:
		return c.NewFloats(a.DType, dims, func(y []float32) error {
			singles(w, y, op.Floats(a), op.Floats(b), k.single)
			return nil
		})
	case a.IsFloat() && k.double != nil:
		y := make([]float64, n)
		combine(w, y, op.Doubles(a), op.Doubles(b), k.double)
		return execute.FromFloat64s(a.DType, dims, y)
	case (a.DType == dtype.Uint64) && k.unsigned != nil:
		y := make([]uint64, n)
		combine(w, y, execute.Numbers[uint64](a), execute.Numbers[uint64](b), k.unsigned)
		return execute.Made(a.DType, dims, y), nil
	case !a.IsFloat() && k.whole != nil && a.DType != dtype.String:
		y := make([]int64, n)
		combine(w, y, a.Int64s(), b.Int64s(), k.whole)
		return execute.FromInt64s(a.DType, dims, y)
	}
	return nil, op.BadType(a)
}

// simple are the operators that another engine's arithmetic has.
var simple = map[string]bool{"Add": true, "Sub": true, "Mul": true, "Div": true, "Abs": true, "Ceil": true, "Cos": true, "Exp": true,
	"Floor": true, "Log": true, "Neg": true, "Relu": true, "Sigmoid": true, "Sin": true, "Sqrt": true, "Tanh": true}

func otherEngine(c *op.Call, dims []int64, in ...*execute.Tensor) (*execute.Tensor, error) {
	for i, t := range in {
		var err error
		if in[i], err = c.Expand(t, dims); err != nil {
			return nil, err
		}
	}
	return c.Arithmetic().Elementwise(c.Node.GetOpType(), in...)
}

// combine applies f to pairs of elements.
func combine[A, R any](w *op.Walk, y []R, a, b []A, f func(a, b A) R) {
	p, q := w.Step(1), w.Step(2)
	w.Runs(func(at []int, n int) {
		i, j := at[1], at[2]
		for k := range y[at[0]:][:n] {
			y[at[0]+k] = f(a[i], b[j])
			i, j = i+p, j+q
		}
	})
}

// stretch is how many elements of a repeated number are made for a loop.
const stretch = 1024

// singles applies f to runs of pairs.
func singles(w *op.Walk, y, a, b []float32, f func(y, a, b []float32)) {
	var repeated [stretch]float32
	p, q := w.Step(1), w.Step(2)
	w.Runs(func(at []int, n int) {
		y, a, b := y[at[0]:][:n], a[at[1]:], b[at[2]:]
		if p == 1 && q == 1 {
			f(y, a[:n], b[:n])
			return
		}
		one := b[0]
		if p == 0 {
			one = a[0]
		}
		for i := range min(n, stretch) {
			repeated[i] = one
		}
		for len(y) > 0 {
			k := min(len(y), stretch)
			switch {
			case p == 0 && q == 0: // one element
				f(y[:k], a[:k], b[:k])
			case p == 0:
				f(y[:k], repeated[:k], b[:k])
				b = b[k:]
			default:
				f(y[:k], a[:k], repeated[:k])
				a = a[k:]
			}
			y = y[k:]
		}
	})
}

// fold is an operator that combines any number of tensors, one after another. finish may be nil.
func (k binary) fold(finish func(c *op.Call, t *execute.Tensor, n int) (*execute.Tensor, error)) op.Operator {
	return op.Operator{Inputs: 1, Run: func(c *op.Call) ([]*execute.Tensor, error) {
		t := c.In[0]
		for _, next := range c.In[1:] {
			if next == nil {
				return nil, op.ErrMissingInput
			}
			var err error
			if t, err = k.apply(c, t, next); err != nil {
				return nil, err
			}
		}
		if finish == nil {
			return op.One(t, nil)
		}
		return op.One(finish(c, t, len(c.In)))
	}}
}
