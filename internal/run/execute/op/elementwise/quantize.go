package elementwise

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// linear has the scales and zero points of a QuantizeLinear or DequantizeLinear.
type linear struct {
	scales, zeros      []float64
	axis, block, inner int // elements of an axis of x, elements that share a scale, elements of the axes behind
	perAxis            int // scales along the axis
}

// newLinear reads inputs 1 and 2, for elements of input 0.
func newLinear(c *op.Call) (*linear, error) {
	x, scale := c.In[0], c.In[1]
	l := &linear{axis: max(x.Len(), 1), inner: 1, perAxis: 1}
	l.block = l.axis
	var err error
	if l.scales, err = asDoubles(scale); err != nil {
		return nil, err
	}
	l.zeros = make([]float64, len(l.scales))
	if zero := c.Input(2); zero != nil {
		if zero.Len() != scale.Len() {
			return nil, op.Unsupported("%d zero points of type %v for %d scales", zero.Len(), zero.DType, scale.Len())
		}
		if l.zeros, err = asDoubles(zero); err != nil {
			return nil, err
		}
	}
	size := c.Int("block_size", 0)
	if scale.Len() == 1 && size == 0 {
		return l, nil
	}
	at, err := op.Axis(c.Int("axis", 1), len(x.Dims))
	if err != nil {
		return nil, err
	}
	_, l.axis, l.inner = op.Sizes(x.Dims, at)
	if size == 0 {
		if len(scale.Dims) != 1 || scale.Dims[0] != x.Dims[at] {
			return nil, fmt.Errorf("scales with dims %v for axis %d of %v", scale.Dims, at, x.Dims)
		}
		l.perAxis, l.block = scale.Len(), -1
		return l, nil
	}
	want := slices.Clone(x.Dims)
	if size < 0 {
		return nil, fmt.Errorf("block_size %d", size)
	}
	want[at] = (x.Dims[at] + size - 1) / size
	if !slices.Equal(want, scale.Dims) {
		return nil, fmt.Errorf("scales with dims %v for blocks of %d along axis %d of %v", scale.Dims, size, at, x.Dims)
	}
	l.perAxis, l.block = int(want[at]), int(size)
	return l, nil
}

// at returns the scale and the zero point of element i.
func (l *linear) at(i int) (scale, zero float64) {
	k := 0
	switch {
	case len(l.scales) == 1:
	case l.block < 0: // one for each element of the axis
		k = i / l.inner % l.axis
	default:
		k = (i/l.inner/l.axis*l.perAxis+i/l.inner%l.axis/l.block)*l.inner + i%l.inner
	}
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
	if !x.IsFloat() && x.DType != dtype.Int32 {
		return nil, op.BadType(x)
	}
	l, err := newLinear(c)
	if err != nil {
		return nil, err
	}
	if err := c.Room(codes, x.Dims); err != nil {
		return nil, err
	}
	single := x.DType != dtype.Float64 && dtype.DType(c.Int("precision", 1)) == dtype.Float32
	numbers := x.Float64s()
	quotients, zeros := make([]float64, len(numbers)), make([]float64, len(numbers))
	for i, v := range numbers {
		var scale float64
		scale, zeros[i] = l.at(i)
		if v /= scale; single {
			v = float64(float32(numbers[i]) / float32(scale))
		}
		quotients[i] = v
		if c.Input(2) != nil && !codes.Integer() { // -0 becomes 0
			quotients[i] += zeros[i]
		}
	}
	if made, ok := op.EncodeSmall(codes, quotients, c.Int("saturate", 1) != 0, "up"); ok {
		return op.One(&execute.Tensor{DType: codes, Dims: x.Dims, Data: made}, nil)
	}
	if !codes.Integer() || codes.Bits() > 16 {
		return nil, op.Unsupported("codes of type %v", codes)
	}
	least, most := codes.Limits()
	made := make([]int64, len(quotients))
	for i, v := range quotients {
		made[i] = least
		if v == v {
			v = min(max(v, float64(least)-zeros[i]), float64(most)-zeros[i])
			made[i] = int64(math.RoundToEven(v) + zeros[i])
		}
	}
	return op.One(execute.FromInt64s(codes, x.Dims, made))
}

func runDequantizeLinear(c *op.Call) ([]*execute.Tensor, error) {
	x, typ := c.In[0], c.In[1].DType
	if to := dtype.DType(c.Int("output_dtype", 0)); to != 0 {
		typ = to
	}
	if zero := c.Input(2); zero != nil && zero.DType != x.DType {
		return nil, op.ErrTypes
	}
	if x.IsFloat() || !typ.Float() {
		return nil, op.Unsupported("codes of type %v with scales of type %v", x.DType, typ)
	}
	l, err := newLinear(c)
	if err != nil {
		return nil, err
	}
	codes, err := asDoubles(x)
	if err != nil {
		return nil, err
	}
	return op.One(c.NewFloats(typ, x.Dims, func(y []float32) error {
		for i, q := range codes {
			scale, zero := l.at(i)
			y[i] = float32(q-zero) * float32(scale)
		}
		return nil
	}))
}

// runDynamicQuantizeLinear finds the scale and the zero point of the range of input 0, with 0.
func runDynamicQuantizeLinear(c *op.Call) ([]*execute.Tensor, error) {
	x := c.In[0]
	if x.DType != dtype.Float32 {
		return nil, op.BadType(x)
	}
	var lo, hi float32
	for _, v := range op.Floats(x) {
		lo, hi = min(lo, v), max(hi, v)
	}
	scale := (hi - lo) / 255
	zero := float32(0)
	if scale > 0 {
		zero = float32(math.RoundToEven(float64(min(max(-lo/scale, 0), 255))))
	}
	codes := make([]byte, x.Len())
	for i, v := range op.Floats(x) {
		q := zero
		if scale > 0 {
			q += float32(math.RoundToEven(float64(v / scale)))
		}
		codes[i] = byte(min(max(q, 0), 255))
	}
	return []*execute.Tensor{
		execute.Made(dtype.Uint8, x.Dims, codes), execute.Made(dtype.Float32, nil, []float32{scale}), execute.Made(dtype.Uint8, nil, []byte{byte(zero)}),
	}, nil
}
