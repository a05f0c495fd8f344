package evaluate

import (
	le "encoding/binary"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// window describes how a kernel moves over one or two spatial axes.
type window struct {
	kernel, strides, dilations []int64
	before, after              []int64 // padding
}

// window reads the attributes of a convolution or pooling over axes of the given sizes.
func (c *call) window(spatial, kernel []int64) (*window, error) {
	n := len(spatial)
	if n < 1 || n > 2 {
		return nil, unsupported("%d spatial dimensions", n)
	}
	ones := slices.Repeat([]int64{1}, n)
	pads := c.ints("pads", make([]int64, 2*n))
	w := &window{kernel: c.ints("kernel_shape", kernel), strides: c.ints("strides", ones), dilations: c.ints("dilations", ones)}
	if len(w.kernel) != n || len(w.strides) != n || len(w.dilations) != n || len(pads) != 2*n || kernel != nil && !slices.Equal(kernel, w.kernel) {
		return nil, fmt.Errorf("kernel_shape %v, strides %v, dilations %v, pads %v do not fit the kernel or %d spatial dimensions", w.kernel, w.strides, w.dilations, pads, n)
	}
	for i := range n {
		if w.kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1 || w.extent(i) > execute.MaxBytes {
			return nil, fmt.Errorf("kernel_shape %v, strides %v, dilations %v: too small or too large", w.kernel, w.strides, w.dilations)
		}
	}
	w.before, w.after = slices.Clone(pads[:n]), slices.Clone(pads[n:])
	switch how := c.text("auto_pad", "NOTSET"); how {
	case "NOTSET":
	case "VALID":
		w.before, w.after = make([]int64, n), make([]int64, n)
	case "SAME_UPPER", "SAME_LOWER":
		for i, d := range spatial {
			steps := (d + w.strides[i] - 1) / w.strides[i]
			all := max((steps-1)*w.strides[i]+w.extent(i)-d, 0)
			w.before[i], w.after[i] = all/2, all-all/2
			if how == "SAME_LOWER" {
				w.before[i], w.after[i] = w.after[i], w.before[i]
			}
		}
	default:
		return nil, unsupported("auto_pad %q", how)
	}
	return w, nil
}

// extent returns the size of the dilated kernel along a spatial axis.
func (w *window) extent(i int) int64 { return (w.kernel[i]-1)*w.dilations[i] + 1 }

// image reshapes [n, c, x] to [n, c, 1, x]: convolutions are computed over two spatial axes.
func image(t *execute.Tensor) (*execute.Tensor, error) {
	if len(t.Dims) == 3 {
		return reshaped(t, []int64{t.Dims[0], t.Dims[1], 1, t.Dims[2]})
	}
	return t, nil
}

// plane returns a pair of numbers for two spatial axes. first is the number of the axis that image
// added, if it did.
func plane(numbers []int64, first int64) []int64 {
	if len(numbers) == 1 {
		return []int64{first, numbers[0]}
	}
	return numbers
}

// spatialPad pads the spatial axes of an image with the element.
func spatialPad(t *execute.Tensor, before, after []int64, element []byte) (*execute.Tensor, error) {
	front := append([]int64{0, 0}, plane(before, 0)...)
	back := append([]int64{0, 0}, plane(after, 0)...)
	return pad(t, front, back, element)
}

// dilate inserts steps-1 zeros between neighbours along each spatial axis.
func dilate(t *execute.Tensor, steps []int64) (*execute.Tensor, error) {
	by := plane(steps, 1)
	if by[0] == 1 && by[1] == 1 {
		return t, nil
	}
	dims := slices.Clone(t.Dims)
	for i, s := range by {
		dims[2+i] = max((dims[2+i]-1)*s+1, 0)
	}
	out, err := execute.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	at := strides(dims)
	at[2] *= by[0]
	at[3] *= by[1]
	paste(out, t, at, 0)
	return out, nil
}

// slide slides kernels [m, c, h, w] over padded images [n, c, y, x].
func (c *call) slide(x, k *execute.Tensor, by []int64) (*execute.Tensor, error) {
	if x.DType != k.DType || !x.IsFloat() {
		return nil, errTypes
	}
	if x.Dims[1] != k.Dims[1] || x.Dims[2] < k.Dims[2] || x.Dims[3] < k.Dims[3] || len(x.Data) == 0 || len(k.Data) == 0 {
		return nil, errKernel(k.Dims, x.Dims)
	}
	by = plane(by, 1)
	want := []int64{x.Dims[0], k.Dims[0], (x.Dims[2]-k.Dims[2])/by[0] + 1, (x.Dims[3]-k.Dims[3])/by[1] + 1}
	if err := c.checkRoom(x.DType, want); err != nil {
		return nil, err
	}
	return c.correlate(x, k, by, want)
}

// errKernel says that a kernel does not fit an image.
func errKernel(kernel, image []int64) error {
	return fmt.Errorf("a kernel with dims %v does not fit an image with dims %v", kernel, image)
}

// grouped splits x into groups along axis 1 and k along axis 0, transforms the kernels of each group,
// correlates, and concatenates the results.
func (c *call) grouped(x, k *execute.Tensor, groups int64, transform func(k *execute.Tensor) (*execute.Tensor, error), by []int64) (*execute.Tensor, error) {
	if groups < 1 || x.Dims[1]%groups != 0 || k.Dims[0]%groups != 0 {
		return nil, fmt.Errorf("cannot split dims %v and %v into %d groups", x.Dims, k.Dims, groups)
	}
	var parts []*execute.Tensor
	for g := range groups {
		nx, nk := x.Dims[1]/groups, k.Dims[0]/groups
		xs, err := slice(x, 1, g*nx, nx)
		if err != nil {
			return nil, err
		}
		ks, err := slice(k, 0, g*nk, nk)
		if err != nil {
			return nil, err
		}
		if ks, err = transform(ks); err != nil {
			return nil, err
		}
		y, err := c.slide(xs, ks, by)
		if err != nil {
			return nil, err
		}
		parts = append(parts, y)
	}
	return concat(parts, 1)
}

// finish adds a bias per channel, and removes the axis that image added.
func (c *call) finish(y, bias *execute.Tensor, rank int) (*execute.Tensor, error) {
	if bias != nil {
		column, err := reshaped(bias, []int64{int64(bias.Len()), 1, 1})
		if err != nil {
			return nil, err
		}
		if y, err = c.binary("Add", y, column); err != nil {
			return nil, err
		}
	}
	if rank == 3 {
		return reshaped(y, []int64{y.Dims[0], y.Dims[1], y.Dims[3]})
	}
	return y, nil
}

func (c *call) convolution() (x, k *execute.Tensor, w *window, err error) {
	x, k = c.in[0], c.in[1]
	if len(x.Dims) != len(k.Dims) || len(x.Dims) < 3 {
		return nil, nil, nil, errKernel(k.Dims, x.Dims)
	}
	if w, err = c.window(x.Dims[2:], k.Dims[2:]); err != nil {
		return
	}
	if x, err = image(x); err != nil {
		return
	}
	k, err = image(k)
	return
}

func runConv(c *call) ([]*execute.Tensor, error) {
	x, k, w, err := c.convolution()
	if err != nil {
		return nil, err
	}
	if x, err = spatialPad(x, w.before, w.after, make([]byte, x.Size())); err != nil {
		return nil, err
	}
	dilated := func(k *execute.Tensor) (*execute.Tensor, error) { return dilate(k, w.dilations) }
	y, err := c.grouped(x, k, c.int("group", 1), dilated, w.strides)
	if err != nil {
		return nil, err
	}
	return oneOutput(c.finish(y, c.input(2), len(c.in[0].Dims)))
}

// runConvTranspose dilates the image by the strides and correlates it with the flipped
// kernels.
func runConvTranspose(c *call) ([]*execute.Tensor, error) {
	if how := c.text("auto_pad", "NOTSET"); how != "NOTSET" {
		return nil, unsupported("auto_pad %q", how)
	}
	x, k, w, err := c.convolution()
	if err != nil {
		return nil, err
	}
	extra := c.ints("output_padding", make([]int64, len(w.kernel)))
	if len(extra) != len(w.kernel) {
		return nil, fmt.Errorf("output_padding %v for %d spatial dimensions", extra, len(w.kernel))
	}
	before, after := make([]int64, len(w.kernel)), make([]int64, len(w.kernel))
	for i := range before {
		before[i] = w.extent(i) - 1 - w.before[i]
		after[i] = w.extent(i) - 1 - w.after[i] + extra[i]
	}
	if x, err = dilate(x, w.strides); err != nil {
		return nil, err
	}
	if x, err = spatialPad(x, before, after, make([]byte, x.Size())); err != nil {
		return nil, err
	}
	flipped := func(k *execute.Tensor) (*execute.Tensor, error) {
		s := strides(k.Dims)
		last := (k.Dims[2]-1)*s[2] + (k.Dims[3]-1)*s[3]
		k, err := view(k, []int64{k.Dims[1], k.Dims[0], k.Dims[2], k.Dims[3]}, []int64{s[1], s[0], -s[2], -s[3]}, last)
		if err != nil {
			return nil, err
		}
		return dilate(k, w.dilations)
	}
	y, err := c.grouped(x, k, c.int("group", 1), flipped, []int64{1, 1})
	if err != nil {
		return nil, err
	}
	return oneOutput(c.finish(y, c.input(2), len(c.in[0].Dims)))
}

func runMaxPool(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	if !t.IsFloat() || len(t.Dims) < 3 || len(c.node.Output) > 1 || c.int("ceil_mode", 0) != 0 {
		return nil, unsupported("ceil_mode, an output Indices, dims %v or type %v", t.Dims, t.DType)
	}
	w, err := c.window(t.Dims[2:], nil)
	if err != nil {
		return nil, err
	}
	if slices.Max(w.dilations) > 1 {
		return nil, unsupported("dilations %v", w.dilations)
	}
	rank := len(t.Dims)
	if t, err = image(t); err != nil {
		return nil, err
	}
	if t, err = spatialPad(t, w.before, w.after, lowest(t.DType)); err != nil {
		return nil, err
	}
	kernel, by := plane(w.kernel, 1), plane(w.strides, 1)
	if t.Dims[2] < kernel[0] || t.Dims[3] < kernel[1] || len(t.Data) == 0 {
		return nil, errKernel(kernel, t.Dims)
	}
	dims := []int64{t.Dims[0], t.Dims[1], (t.Dims[2]-kernel[0])/by[0] + 1, (t.Dims[3]-kernel[1])/by[1] + 1}
	y, err := c.maxPool(t, kernel, by, dims)
	if err != nil {
		return nil, err
	}
	return oneOutput(c.finish(y, nil, rank))
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
