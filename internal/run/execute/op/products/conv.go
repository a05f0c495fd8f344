package products

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/convolve"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// convolution is a convolution whose sizes are checked.
type convolution struct {
	shape convolve.Shape
	dims  []int64 // of the output
}

// errKernel says that a kernel does not fit an image.
func errKernel(kernel, image []int64) error {
	return fmt.Errorf("a kernel with dims %v does not fit an image with dims %v", kernel, image)
}

// newConvolution checks a convolution of x with kernels k.
func newConvolution(c *op.Call, x, k *execute.Tensor) (*convolution, error) {
	groups := c.Int("group", 1)
	switch {
	case len(x.Dims) != len(k.Dims) || len(x.Dims) < 3 || x.Len() == 0 || k.Len() == 0:
		return nil, errKernel(k.Dims, x.Dims)
	case groups < 1 || x.Dims[1]%groups != 0 || k.Dims[0]%groups != 0 || x.Dims[1]/groups != k.Dims[1]:
		return nil, fmt.Errorf("cannot split dims %v and %v into %d groups", x.Dims, k.Dims, groups)
	}
	w, err := newWindow(c, x.Dims[2:], k.Dims[2:])
	if err != nil {
		return nil, err
	}
	g, out, err := w.geometry(x.Dims[2:], false)
	if err != nil {
		return nil, err
	}
	s := &convolution{convolve.Shape{Geometry: g, Images: int(x.Dims[0]), Groups: int(groups), From: int(x.Dims[1]), To: int(k.Dims[0])},
		slices.Concat([]int64{x.Dims[0], k.Dims[0]}, out)}
	return s, c.Spend(float64(op.Product(s.dims)) * float64(op.Product(k.Dims[1:])))
}

// ConvolutionShape describes a convolution of x with kernels k.
func ConvolutionShape(c *op.Call, x, k *execute.Tensor) (*convolve.Shape, error) {
	s, err := newConvolution(c, x, k)
	if err != nil {
		return nil, err
	}
	return &s.shape, nil
}

func runConv(c *op.Call) ([]*execute.Tensor, error) {
	x, k, bias := c.In[0], c.In[1], c.Input(2)
	s, err := newConvolution(c, x, k)
	if err != nil {
		return nil, err
	}
	if x.DType != k.DType || !x.IsFloat() || bias != nil && bias.DType != x.DType {
		return nil, op.ErrTypes
	}
	if bias != nil && bias.Len() != s.shape.To {
		return nil, fmt.Errorf("%d biases for %d channels", bias.Len(), s.shape.To)
	}
	switch {
	case c.Arithmetic() != nil && len(x.Dims) < 5:
		return op.One(s.byOther(c, x, k, bias))
	case x.DType == dtype.Float64:
		if err := c.Room(x.DType, s.dims); err != nil {
			return nil, err
		}
		y := make([]float64, op.Product(s.dims))
		if bias != nil {
			spread(y, op.Doubles(bias), s.shape.Images)
		}
		convolve.Exactly(&s.shape, y, op.Doubles(x), op.Doubles(k))
		return op.One(execute.FromFloat64s(x.DType, s.dims, y))
	}
	return op.One(c.NewFloats(x.DType, s.dims, func(y []float32) error {
		var biases []float32
		if bias != nil {
			biases = op.Floats(bias)
		}
		return s.shape.Convolve(c.Context(), op.Workers(), y, op.Floats(x), op.Floats(k), biases)
	}))
}

// spread sets the elements of each channel of some images to a number of the channel.
func spread[T any](y, numbers []T, images int) {
	if len(y) == 0 {
		return
	}
	size := len(y) / images / len(numbers)
	for i := range images * len(numbers) {
		v := numbers[i%len(numbers)]
		for k := range size {
			y[i*size+k] = v
		}
	}
}

// runConvTranspose computes the transpose of the convolution that makes its input of its output.
func runConvTranspose(c *op.Call) ([]*execute.Tensor, error) {
	x, k, bias := c.In[0], c.In[1], c.Input(2)
	s, spatial, err := TransposedShape(c, x, k)
	if err != nil {
		return nil, err
	}
	if x.DType != k.DType || !x.IsFloat() || bias != nil && bias.Len() != s.From {
		return nil, op.ErrTypes
	}
	if err := c.Spend(float64(op.Product(x.Dims)) * float64(op.Product(k.Dims[1:]))); err != nil {
		return nil, err
	}
	if err := c.Room(x.DType, slices.Concat(x.Dims[:1], k.Dims[2:], x.Dims[2:])); err != nil { // what a channel takes
		return nil, err
	}
	return op.One(c.NewFloats(x.DType, slices.Concat([]int64{x.Dims[0], int64(s.From)}, spatial), func(y []float32) error {
		if bias != nil {
			spread(y, op.Floats(bias), s.Images)
		} else {
			clear(y)
		}
		return s.Transpose(c.Context(), op.Workers(), y, op.Floats(x), op.Floats(k))
	}))
}

// TransposedShape describes the convolution whose transpose maps x to an output, and the spatial sizes of that.
func TransposedShape(c *op.Call, x, k *execute.Tensor) (*convolve.Shape, []int64, error) {
	groups := c.Int("group", 1)
	if len(x.Dims) != len(k.Dims) || len(x.Dims) < 3 || x.Len() == 0 || k.Len() == 0 || x.Dims[1] != k.Dims[0] || groups < 1 || k.Dims[0]%groups != 0 {
		return nil, nil, errKernel(k.Dims, x.Dims)
	}
	w, spatial, err := transposedWindow(c, x.Dims[2:], k.Dims[2:])
	if err != nil {
		return nil, nil, err
	}
	g, _, err := w.geometry(spatial, false)
	if err != nil {
		return nil, nil, err
	}
	for i, d := range x.Dims[2:] {
		g.Out[3-len(spatial)+i] = int(d)
	}
	return &convolve.Shape{Geometry: g, Images: int(x.Dims[0]), Groups: int(groups), From: int(k.Dims[1] * groups), To: int(k.Dims[0])}, spatial, nil
}

// transposedWindow returns the window of a transposed convolution and the spatial sizes of its output.
func transposedWindow(c *op.Call, in, kernel []int64) (*window, []int64, error) {
	w, err := newWindow(c, in, kernel)
	if err != nil {
		return nil, nil, err
	}
	n := len(in)
	extra, want := c.Ints("output_padding", make([]int64, n)), c.Ints("output_shape", nil)
	how := c.Text("auto_pad", "NOTSET")
	if len(want) > n { // with images and channels
		want = want[len(want)-n:]
	}
	if len(extra) != n || want != nil && len(want) != n {
		return nil, nil, fmt.Errorf("output_padding %v or output_shape %v for %d spatial dimensions", extra, want, n)
	}
	spatial := make([]int64, n)
	for i, d := range in {
		full := (d-1)*w.strides[i] + w.extent(i) + extra[i]
		if want == nil && (how == "NOTSET" || how == "VALID") {
			spatial[i] = full - w.before[i] - w.after[i]
			continue
		}
		spatial[i] = d * w.strides[i]
		if want != nil {
			spatial[i] = want[i]
		}
		all := max(full-spatial[i], 0)
		w.before[i], w.after[i] = all/2, all-all/2
		if how != "SAME_UPPER" {
			w.before[i], w.after[i] = w.after[i], w.before[i]
		}
	}
	for i, d := range spatial {
		if d < 1 || d > execute.MaxBytes {
			return nil, nil, fmt.Errorf("pads %v leave no output", c.Ints("pads", nil))
		}
		// The last window may end before the image does, or behind the padding.
		w.after[i] = max(w.after[i], (in[i]-1)*w.strides[i]+w.extent(i)-d-w.before[i])
	}
	return w, spatial, nil
}
