package products

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convolve"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// pooling is a pooling whose sizes are checked.
type pooling struct {
	convolve.Geometry
	*window
	channels int     // of all images
	dims     []int64 // of the output
}

func newPooling(c *op.Call, t *execute.Tensor) (*pooling, error) {
	if len(t.Dims) < 3 || t.Len() == 0 {
		return nil, op.Unsupported("dims %v", t.Dims)
	}
	w, err := newWindow(c, t.Dims[2:], nil)
	if err != nil {
		return nil, err
	}
	g, out, err := w.geometry(t.Dims[2:], c.Is("ceil_mode"))
	if err != nil {
		return nil, err
	}
	p := &pooling{g, w, int(t.Dims[0] * t.Dims[1]), slices.Concat(t.Dims[:2], out)}
	if err := c.Spend(float64(op.Product(p.dims)) * float64(op.Product(w.kernel))); err != nil {
		return nil, err
	}
	return p, c.Room(t.DType, p.dims)
}

func runMaxPool(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	p, err := newPooling(c, t)
	if err != nil {
		return nil, err
	}
	plain := !c.Wants(1) && slices.Max(p.dilations) == 1 && !c.Is("ceil_mode") && len(t.Dims) < 5
	switch {
	case c.Arithmetic() != nil && plain && t.IsFloat():
		return op.One(p.byOther(c, t))
	case !t.IsFloat():
		y, places, err := maxPool(c, p, t.Int64s(), math.MinInt64)
		if err != nil {
			return nil, err
		}
		out, err := execute.FromInt64s(t.DType, p.dims, y)
		return []*execute.Tensor{out, places}, err
	case t.DType == dtype.Float64:
		y, places, err := maxPool(c, p, op.Doubles(t), math.Inf(-1))
		if err != nil {
			return nil, err
		}
		out, err := execute.FromFloat64s(t.DType, p.dims, y)
		return []*execute.Tensor{out, places}, err
	}
	var places *execute.Tensor
	out, err := c.NewFloats(t.DType, p.dims, func(y []float32) error {
		made, where, err := maxPool(c, p, op.Floats(t), float32(math.Inf(-1)))
		copy(y, made)
		places = where
		return err
	})
	return []*execute.Tensor{out, places}, err
}

// maxPool also returns the output Indices if the node has it.
func maxPool[T convolve.Number](c *op.Call, p *pooling, x []T, least T) (y []T, places *execute.Tensor, err error) {
	y = make([]T, op.Product(p.dims))
	if !c.Wants(1) {
		return y, nil, convolve.MaxPool(c.Context(), &p.Geometry, op.Workers(), p.channels, y, x, least)
	}
	if err := c.Room(dtype.Int64, p.dims); err != nil {
		return nil, nil, err
	}
	list := make([]int64, len(y))
	convolve.MaxPlaces(&p.Geometry, p.channels, y, list, x, least)
	size := len(x) / p.channels
	for i, at := range list {
		if c.Is("storage_order") {
			at = columnMajor(at, p.In)
		}
		list[i] = at + int64(i/(len(list)/p.channels)*size)
	}
	return y, op.Int64(p.dims, list), nil
}

// columnMajor renumbers an element of a channel.
func columnMajor(at int64, sizes [3]int) int64 {
	x, y, z := at%int64(sizes[2]), at/int64(sizes[2])%int64(sizes[1]), at/int64(sizes[2]*sizes[1])
	return z + int64(sizes[0])*(y+int64(sizes[1])*x)
}

// runAveragePool divides the sums of windows by the number of their elements, with or without those of the
// padding.
func runAveragePool(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	p, err := newPooling(c, t)
	if err != nil {
		return nil, err
	}
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	counts := p.counts(c.Is("count_include_pad"))
	return op.One(c.NewFloats(t.DType, p.dims, func(y []float32) error {
		if err := convolve.SumPool(c.Context(), &p.Geometry, op.Workers(), p.channels, y, op.Floats(t)); err != nil {
			return err
		}
		for i := range y {
			y[i] /= counts[i%len(counts)]
		}
		return nil
	}))
}

// AveragePoolGeometry describes the windows of an AveragePool over t, and how many elements each counts.
func AveragePoolGeometry(c *op.Call, t *execute.Tensor) (*convolve.Geometry, []float32, error) {
	p, err := newPooling(c, t)
	if err != nil {
		return nil, nil, err
	}
	return &p.Geometry, p.counts(c.Is("count_include_pad")), nil
}

// counts returns how many elements each window has, with or without the padding.
func (p *pooling) counts(padding bool) []float32 {
	counts := []float32{1}
	for a := range 3 {
		from, to := 0, p.In[a]
		if k := a - 3 + len(p.before); padding && k >= 0 {
			from, to = from-int(p.before[k]), to+int(p.after[k])
		}
		var next []float32
		for _, outer := range counts {
			for o := range p.Out[a] {
				n := 0
				for tap := range p.Kernel[a] {
					if at := o*p.Stride[a] - p.Before[a] + tap*p.Dilation[a]; at >= from && at < to {
						n++
					}
				}
				next = append(next, outer*float32(n))
			}
		}
		counts = next
	}
	return counts
}

// runLpPool takes the p-norms of windows.
func runLpPool(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	p, err := newPooling(c, t)
	if err != nil {
		return nil, err
	}
	if !t.IsFloat() {
		return nil, op.BadType(t)
	}
	power := float64(c.Int("p", 2))
	return op.One(c.NewFloats(t.DType, p.dims, func(y []float32) error {
		raised := make([]float32, t.Len())
		for i, v := range op.Floats(t) {
			raised[i] = float32(math.Pow(math.Abs(float64(v)), power))
		}
		if err := convolve.SumPool(c.Context(), &p.Geometry, op.Workers(), p.channels, y, raised); err != nil {
			return err
		}
		for i, v := range y {
			y[i] = float32(math.Pow(float64(v), 1/power))
		}
		return nil
	}))
}
