package elementwise

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// linear has the scales and zero points of a QuantizeLinear or DequantizeLinear. Element i of a tensor
// uses number i / run % len(scales).
type linear struct {
	scales []float32
	zeros  []int64
	run    int
}

// linear reads inputs 1 and 2, for elements of input 0.
func newLinear(c *op.Call) (*linear, error) {
	x, scale := c.In[0], c.In[1]
	switch scale.DType {
	case dtype.Float32, dtype.Float16, dtype.BFloat16:
	default:
		return nil, op.Unsupported("scales of type %v", scale.DType)
	}
	if c.Int("block_size", 0) != 0 {
		return nil, op.Unsupported("scales of blocks")
	}
	l := &linear{scale.Float32s(), make([]int64, scale.Len()), max(x.Len(), 1)}
	if zero := c.Input(2); zero != nil {
		if zero.IsFloat() || zero.Len() != scale.Len() {
			return nil, op.Unsupported("%d zero points of type %v for %d scales", zero.Len(), zero.DType, scale.Len())
		}
		l.zeros = zero.Int64s()
	}
	if len(l.scales) == 1 {
		return l, nil
	}
	at, err := op.Axis(c.Int("axis", 1), len(x.Dims))
	if err != nil {
		return nil, err
	}
	if len(scale.Dims) != 1 || scale.Dims[0] != x.Dims[at] {
		return nil, fmt.Errorf("scales with dims %v for axis %d of %v", scale.Dims, at, x.Dims)
	}
	l.run = int(op.Product(x.Dims[at+1:]))
	return l, nil
}

// at returns the scale and the zero point of element i.
func (l *linear) at(i int) (scale float32, zero int64) {
	k := i / l.run % len(l.scales)
	return l.scales[k], l.zeros[k]
}

// runQuantizeLinear rounds half to even. NaN becomes the lowest code, as in ONNX Runtime.
func runQuantizeLinear(c *op.Call) ([]*execute.Tensor, error) {
	x, codes := c.In[0], dtype.Uint8
	if to := dtype.DType(c.Int("output_dtype", 0)); to != 0 {
		codes = to
	}
	if zero := c.Input(2); zero != nil {
		codes = zero.DType
	}
	switch codes {
	case dtype.Uint8, dtype.Int8, dtype.Uint16, dtype.Int16:
	default:
		return nil, op.Unsupported("codes of type %v", codes)
	}
	if x.DType != c.In[1].DType {
		return nil, op.Unsupported("elements of type %v with scales of type %v", x.DType, c.In[1].DType)
	}
	l, err := newLinear(c)
	if err != nil {
		return nil, err
	}
	if err := c.Room(codes, x.Dims); err != nil {
		return nil, err
	}
	out, err := execute.New(codes, x.Dims)
	if err != nil {
		return nil, err
	}
	least, most := codes.Limits()
	size := out.Size()
	for i, v := range x.Float32s() {
		scale, zero := l.at(i)
		q := least
		if v = v / scale; v == v {
			q = int64(math.RoundToEven(float64(min(max(v, float32(least-zero)), float32(int64(most)-zero))))) + zero
		}
		for k := range size {
			out.Data[i*size+k] = byte(q >> (8 * k))
		}
	}
	return op.One(out, nil)
}

func runDequantizeLinear(c *op.Call) ([]*execute.Tensor, error) {
	x, typ := c.In[0], c.In[1].DType
	switch x.DType {
	case dtype.Uint8, dtype.Int8, dtype.Uint16, dtype.Int16, dtype.Int32:
	default:
		return nil, op.Unsupported("codes of type %v", x.DType)
	}
	if zero := c.Input(2); zero != nil && zero.DType != x.DType {
		return nil, op.ErrTypes
	}
	l, err := newLinear(c)
	if err != nil {
		return nil, err
	}
	if err := c.Room(typ, x.Dims); err != nil {
		return nil, err
	}
	values := make([]float32, x.Len())
	for i, q := range x.Int64s() {
		scale, zero := l.at(i)
		values[i] = float32(q-zero) * scale
	}
	return op.One(execute.FromFloat32s(typ, x.Dims, values))
}
