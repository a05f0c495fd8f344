package contrib

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// scaled is what codes of 8 bits of one scale and zero point stand for.
type scaled struct {
	scale float32
	zero  int64
	typ   dtype.DType
}

// newScaled reads a scale and a zero point, which may be nil, from inputs i and i+1.
func newScaled(c *op.Call, i int, typ dtype.DType) (scaled, error) {
	scale, zero := c.Input(i), c.Input(i+1)
	if scale == nil {
		return scaled{}, op.ErrMissingInput
	}
	if typ != dtype.Int8 && typ != dtype.Uint8 || !scale.IsFloat() || scale.Len() != 1 || zero != nil && (zero.DType != typ || zero.Len() != 1) {
		return scaled{}, op.Unsupported("codes of type %v, or other scales and zero points than one", typ)
	}
	s := scaled{scale: op.Floats(scale)[0], typ: typ}
	if zero != nil {
		s.zero = zero.Int64s()[0]
	}
	return s, nil
}

func (s scaled) decoded(t *execute.Tensor) []float32 {
	x := make([]float32, t.Len())
	for i, code := range t.Int64s() {
		x[i] = float32(code-s.zero) * s.scale
	}
	return x
}

func (s scaled) encoded(dims []int64, x []float32) (*execute.Tensor, error) {
	least, most := 0.0, 255.0
	if s.typ == dtype.Int8 {
		least, most = -128, 127
	}
	codes := make([]int64, len(x))
	for i, v := range x {
		codes[i] = int64(min(max(math.RoundToEven(float64(v/s.scale))+float64(s.zero), least), most))
	}
	return execute.FromInt64s(s.typ, dims, codes)
}

// qlinearPair is an operator on codes of two tensors, each with a scale and a zero point.
func qlinearPair(f func(a, b float32) float32) func(c *op.Call) ([]*execute.Tensor, error) {
	return func(c *op.Call) ([]*execute.Tensor, error) {
		if c.In[3] == nil || c.In[3].DType != c.In[0].DType {
			return nil, op.ErrTypes
		}
		dims, err := op.Broadcast(c.In[0].Dims, c.In[3].Dims)
		if err != nil {
			return nil, err
		}
		if err := c.Room(dtype.Float64, dims); err != nil {
			return nil, err
		}
		var x [2][]float32
		for i := range x {
			s, err := newScaled(c, 3*i+1, c.In[3*i].DType)
			if err != nil {
				return nil, err
			}
			t, err := c.Expand(c.In[3*i], dims)
			if err != nil {
				return nil, err
			}
			x[i] = s.decoded(t)
		}
		s, err := newScaled(c, 6, c.In[0].DType)
		if err != nil {
			return nil, err
		}
		for i, v := range x[1] {
			x[0][i] = f(x[0][i], v)
		}
		return op.One(s.encoded(dims, x[0]))
	}
}

// qlinearUnary is an operator on codes of a tensor.
func qlinearUnary(function func(c *op.Call) func(x float32) float32) func(c *op.Call) ([]*execute.Tensor, error) {
	return func(c *op.Call) ([]*execute.Tensor, error) {
		if c.In[1] == nil || c.Input(3) == nil {
			return nil, fmt.Errorf("%w: a scale", op.ErrMissingInput)
		}
		from, err := newScaled(c, 1, c.In[0].DType)
		if err != nil {
			return nil, err
		}
		to, err := newScaled(c, 3, c.In[0].DType)
		if err != nil {
			return nil, err
		}
		x, f := from.decoded(c.In[0]), function(c)
		for i, v := range x {
			x[i] = f(v)
		}
		return op.One(to.encoded(c.In[0].Dims, x))
	}
}

func leakyRelu(c *op.Call) func(x float32) float32 {
	alpha := c.Float("alpha", 0.01)
	return func(x float32) float32 {
		if x < 0 {
			return alpha * x
		}
		return x
	}
}

func sigmoid(*op.Call) func(x float32) float32 {
	return func(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }
}
