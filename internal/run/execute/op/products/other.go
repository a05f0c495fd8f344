package products

import (
	le "encoding/binary"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// The arithmetic of another engine takes images that are padded, kernels that are dilated, and one group.

// byOther convolves by another engine's arithmetic.
func (s *convolution) byOther(c *op.Call, x, k, bias *execute.Tensor) (*execute.Tensor, error) {
	w, err := newWindow(c, x.Dims[2:], k.Dims[2:])
	if err != nil {
		return nil, err
	}
	steps := plane(w.strides, 1)
	if x, err = padded(c, x, w, make([]byte, x.Size())); err != nil {
		return nil, err
	}
	if k, err = dilated(image(k), plane(w.dilations, 1)); err != nil {
		return nil, err
	}
	var parts []*execute.Tensor
	groups, out := int64(s.shape.Groups), []int64{int64(s.shape.Images), int64(s.shape.To / s.shape.Groups), int64(s.shape.Out[1]), int64(s.shape.Out[2])}
	for g := range groups {
		nx, nk := x.Dims[1]/groups, k.Dims[0]/groups
		xs, err := c.Slice(x, 1, g*nx, nx)
		if err != nil {
			return nil, err
		}
		ks, err := c.Slice(k, 0, g*nk, nk)
		if err != nil {
			return nil, err
		}
		y, err := c.Arithmetic().Correlate(xs, ks, steps, out)
		if err != nil {
			return nil, err
		}
		parts = append(parts, y)
	}
	y, err := c.Concat(parts, 1)
	if err != nil {
		return nil, err
	}
	if bias != nil {
		column, err := op.Reshaped(bias, []int64{int64(bias.Len()), 1, 1})
		if err != nil {
			return nil, err
		}
		if column, err = c.Expand(column, y.Dims); err != nil {
			return nil, err
		}
		if y, err = c.Arithmetic().Elementwise("Add", y, column); err != nil {
			return nil, err
		}
	}
	return op.Reshaped(y, s.dims)
}

// byOther pools by another engine's arithmetic.
func (p *pooling) byOther(c *op.Call, t *execute.Tensor) (*execute.Tensor, error) {
	t, err := padded(c, t, p.window, lowest(t.DType))
	if err != nil {
		return nil, err
	}
	dims := []int64{t.Dims[0], t.Dims[1], int64(p.Out[1]), int64(p.Out[2])}
	y, err := c.Arithmetic().MaxPool(t, plane(p.kernel, 1), plane(p.strides, 1), dims)
	if err != nil {
		return nil, err
	}
	return op.Reshaped(y, p.dims)
}

// image reshapes [n, c, x] to [n, c, 1, x].
func image(t *execute.Tensor) *execute.Tensor {
	if len(t.Dims) == 3 {
		return &execute.Tensor{DType: t.DType, Dims: []int64{t.Dims[0], t.Dims[1], 1, t.Dims[2]}, Data: t.Data}
	}
	return t
}

// plane returns a pair of numbers for two spatial axes. first is the number of the axis that image
// added, if it did.
func plane(numbers []int64, first int64) []int64 {
	if len(numbers) == 1 {
		return []int64{first, numbers[0]}
	}
	return numbers
}

func padded(c *op.Call, t *execute.Tensor, w *window, element []byte) (*execute.Tensor, error) {
	front := append([]int64{0, 0}, plane(w.before, 0)...)
	back := append([]int64{0, 0}, plane(w.after, 0)...)
	return c.Pad(image(t), front, back, element)
}

// dilated inserts steps-1 zeros between neighbours along each spatial axis.
func dilated(t *execute.Tensor, steps []int64) (*execute.Tensor, error) {
	dims := slices.Clone(t.Dims)
	for i, s := range steps {
		dims[2+i] = max((dims[2+i]-1)*s+1, 0)
	}
	out, err := execute.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	at := op.Strides(dims)
	at[2] *= steps[0]
	at[3] *= steps[1]
	op.Paste(out, t, at, 0)
	return out, nil
}

// lowest returns -Inf as an element of the type.
func lowest(typ dtype.DType) []byte {
	switch typ {
	case dtype.Float16:
		return []byte{0, 0xfc}
	case dtype.BFloat16:
		return []byte{0x80, 0xff}
	case dtype.Float64:
		return le.LittleEndian.AppendUint64(nil, math.Float64bits(math.Inf(-1)))
	}
	return le.LittleEndian.AppendUint32(nil, math.Float32bits(float32(math.Inf(-1))))
}
