package products

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convolve"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// shifted returns integers less their zero points: one, or one for each of n parts of axis.
func shifted(t, zero *execute.Tensor, axis int) (*execute.Tensor, error) {
	if t.IsFloat() || !t.DType.Integer() {
		return nil, op.BadType(t)
	}
	x := t.Int64s()
	if zero != nil {
		if zero.DType != t.DType {
			return nil, op.ErrTypes
		}
		list := zero.Int64s()
		if len(list) == 0 || len(list) > 1 && (len(t.Dims) <= axis || int64(len(list)) != t.Dims[axis]) {
			return nil, fmt.Errorf("zero points with dims %v for dims %v", zero.Dims, t.Dims)
		}
		inner := 1
		if len(list) > 1 {
			_, _, inner = op.Sizes(t.Dims, axis)
		}
		for i := range x {
			x[i] -= list[i/inner%len(list)]
		}
	}
	return op.Int64(t.Dims, x), nil
}

// matMulWhole multiplies integers less their zero points, of rows of a and columns of b.
func matMulWhole(c *op.Call, a, aZero, b, bZero *execute.Tensor) (*execute.Tensor, error) {
	x, err := shifted(a, aZero, max(len(a.Dims)-2, 0))
	if err != nil {
		return nil, err
	}
	y, err := shifted(b, bZero, max(len(b.Dims)-1, 0))
	if err != nil {
		return nil, err
	}
	return MatMul(c, x, y)
}

func runMatMulInteger(c *op.Call) ([]*execute.Tensor, error) {
	t, err := matMulWhole(c, c.In[0], c.Input(2), c.In[1], c.Input(3))
	if err != nil {
		return nil, err
	}
	return op.One(execute.FromInt64s(dtype.Int32, t.Dims, t.Int64s()))
}

// convWhole convolves integers less their zero points.
func convWhole(c *op.Call, x, xZero, k, kZero *execute.Tensor) (*execute.Tensor, error) {
	s, err := newConvolution(c, x, k)
	if err != nil {
		return nil, err
	}
	a, err := shifted(x, xZero, 1)
	if err != nil {
		return nil, err
	}
	b, err := shifted(k, kZero, 0)
	if err != nil {
		return nil, err
	}
	if err := c.Room(dtype.Int64, s.dims); err != nil {
		return nil, err
	}
	y := make([]int64, op.Product(s.dims))
	convolve.Exactly(&s.shape, y, execute.Numbers[int64](a), execute.Numbers[int64](b))
	return op.Int64(s.dims, y), nil
}

func runConvInteger(c *op.Call) ([]*execute.Tensor, error) {
	t, err := convWhole(c, c.In[0], c.Input(2), c.In[1], c.Input(3))
	if err != nil {
		return nil, err
	}
	return op.One(execute.FromInt64s(dtype.Int32, t.Dims, t.Int64s()))
}

// requantized scales integers back to codes. The factors of axis may differ.
func requantized(t *execute.Tensor, axis int, a, b, y, zero *execute.Tensor) (*execute.Tensor, error) {
	factors, weights, results := a.Float64s(), b.Float64s(), y.Float64s()
	if len(factors) != 1 || len(results) != 1 || zero == nil || zero.Len() != 1 || len(weights) != 1 && (axis >= len(t.Dims) || int64(len(weights)) != t.Dims[axis]) {
		return nil, op.Unsupported("scales with dims %v, %v and %v", a.Dims, b.Dims, y.Dims)
	}
	inner := 1
	if len(weights) > 1 {
		_, _, inner = op.Sizes(t.Dims, axis)
	}
	least, most := zero.DType.Limits()
	shift := zero.Int64s()[0]
	codes := t.Int64s()
	for i, v := range codes {
		scaled := float64(v) * float64(float32(factors[0])*float32(weights[i/inner%len(weights)])/float32(results[0]))
		codes[i] = int64(min(max(math.RoundToEven(scaled)+float64(shift), float64(least)), float64(most)))
	}
	return execute.FromInt64s(zero.DType, t.Dims, codes)
}

func runQLinearMatMul(c *op.Call) ([]*execute.Tensor, error) {
	t, err := matMulWhole(c, c.In[0], c.In[2], c.In[3], c.In[5])
	if err != nil {
		return nil, err
	}
	return op.One(requantized(t, max(len(t.Dims)-1, 0), c.In[1], c.In[4], c.In[6], c.In[7]))
}

func runQLinearConv(c *op.Call) ([]*execute.Tensor, error) {
	t, err := convWhole(c, c.In[0], c.In[2], c.In[3], c.In[5])
	if err != nil {
		return nil, err
	}
	if bias := c.Input(8); bias != nil {
		if int64(bias.Len()) != t.Dims[1] {
			return nil, fmt.Errorf("%d biases for %d channels", bias.Len(), t.Dims[1])
		}
		y, list := slices.Clone(execute.Numbers[int64](t)), bias.Int64s()
		inner := int(op.Product(t.Dims[2:]))
		for i := range y {
			y[i] += list[i/inner%len(list)]
		}
		t = op.Int64(t.Dims, y)
	}
	return op.One(requantized(t, 1, c.In[1], c.In[4], c.In[6], c.In[7]))
}
