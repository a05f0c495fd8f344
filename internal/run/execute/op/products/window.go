package products

import (
	"fmt"
	"slices"

	"onnxquant/internal/convolve"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// window describes how a kernel moves over up to three spatial axes.
type window struct {
	kernel, strides, dilations []int64
	before, after              []int64 // padding
}

const windowAttributes = "auto_pad dilations kernel_shape pads strides"

// newWindow reads the attributes of a convolution or pooling over axes of the given sizes. kernel is nil if they
// have it.
func newWindow(c *op.Call, spatial, kernel []int64) (*window, error) {
	n := len(spatial)
	if n < 1 || n > 3 {
		return nil, op.Unsupported("%d spatial dimensions", n)
	}
	ones := slices.Repeat([]int64{1}, n)
	pads := c.Ints("pads", make([]int64, 2*n))
	w := &window{kernel: c.Ints("kernel_shape", kernel), strides: c.Ints("strides", ones), dilations: c.Ints("dilations", ones)}
	if len(w.kernel) != n || len(w.strides) != n || len(w.dilations) != n || len(pads) != 2*n || kernel != nil && !slices.Equal(kernel, w.kernel) {
		return nil, fmt.Errorf("kernel_shape %v, strides %v, dilations %v, pads %v do not fit the kernel or %d spatial dimensions", w.kernel, w.strides, w.dilations, pads, n)
	}
	for i := range n {
		if w.kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1 || max(w.kernel[i], w.strides[i], w.dilations[i]) > execute.MaxBytes || w.extent(i) > execute.MaxBytes ||
			max(pads[i], pads[n+i], -pads[i], -pads[n+i]) > execute.MaxBytes {
			return nil, fmt.Errorf("kernel_shape %v, strides %v, dilations %v, pads %v: too small or too large", w.kernel, w.strides, w.dilations, pads)
		}
	}
	w.before, w.after = slices.Clone(pads[:n]), slices.Clone(pads[n:])
	switch how := c.Text("auto_pad", "NOTSET"); how {
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
		return nil, op.Unsupported("auto_pad %q", how)
	}
	return w, nil
}

// extent returns the size of the dilated kernel along a spatial axis.
func (w *window) extent(i int) int64 { return (w.kernel[i]-1)*w.dilations[i] + 1 }

// geometry returns how the window moves over an image, and the spatial sizes of the output. With ceil, a last
// window may reach beyond the padding, also the only one: exporters write global pools as such windows.
func (w *window) geometry(spatial []int64, ceil bool) (g convolve.Geometry, out []int64, err error) {
	for i := range 3 {
		g.In[i], g.Kernel[i], g.Out[i], g.Stride[i], g.Dilation[i] = 1, 1, 1, 1, 1
	}
	lead := 3 - len(spatial)
	for i, d := range spatial {
		room := d + w.before[i] + w.after[i] - w.extent(i)
		if d == 0 || room < 0 && (!ceil || -room >= w.strides[i]) {
			return g, nil, fmt.Errorf("a kernel with dims %v does not fit an image with dims %v", w.kernel, spatial)
		}
		n := room/w.strides[i] + 1 // 1 if there is less than no room
		if ceil && room > 0 && room%w.strides[i] != 0 && n*w.strides[i] < d+w.before[i] {
			n++
		}
		out = append(out, n)
		k := lead + i
		g.In[k], g.Kernel[k], g.Out[k] = int(d), int(w.kernel[i]), int(n)
		g.Stride[k], g.Dilation[k], g.Before[k] = int(w.strides[i]), int(w.dilations[i]), int(w.before[i])
	}
	return g, out, nil
}
