package moves

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/shapes"
)

func runTranspose(c *op.Call) ([]*execute.Tensor, error) {
	rank := len(c.In[0].Dims)
	perm := make([]int, rank)
	for i := range perm {
		perm[i] = rank - 1 - i
	}
	if list := c.Ints("perm", nil); list != nil {
		marks, err := op.Axes(list, rank)
		if err != nil || len(list) != rank || slices.Contains(marks, false) {
			return nil, fmt.Errorf("invalid perm %v for %d dimensions", list, rank)
		}
		for i, p := range list {
			perm[i] = int(p)
		}
	}
	return op.One(c.Transpose(c.In[0], perm))
}

func runReshape(c *op.Call) ([]*execute.Tensor, error) {
	t, want := c.In[0], c.List(1, "shape")
	dims := slices.Clone(want)
	open := -1
	for i, d := range dims {
		switch {
		case d == 0 && c.Int("allowzero", 0) == 0:
			if i >= len(t.Dims) {
				return nil, fmt.Errorf("cannot reshape dims %v to %v", t.Dims, want)
			}
			dims[i] = t.Dims[i]
		case d == -1 && open < 0:
			dims[i], open = 1, i
		case d < 0:
			return nil, fmt.Errorf("invalid shape %v", want)
		}
	}
	if n := op.Product(dims); open >= 0 && n > 0 {
		dims[open] = int64(t.Len()) / n
	}
	return op.One(op.Reshaped(t, dims))
}

func runFlatten(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	a := c.Int("axis", 1)
	if a < 0 {
		a += int64(len(t.Dims))
	}
	if a < 0 || a > int64(len(t.Dims)) {
		return nil, fmt.Errorf("axis %d of a tensor with %d dimensions", a, len(t.Dims))
	}
	return op.One(op.Reshaped(t, []int64{op.Product(t.Dims[:a]), op.Product(t.Dims[a:])}))
}

func runSqueeze(c *op.Call) ([]*execute.Tensor, error) {
	t, list := c.In[0], c.List(1, "axes")
	marks, err := op.Axes(list, len(t.Dims))
	if err != nil {
		return nil, err
	}
	dims := []int64{}
	for i, d := range t.Dims {
		if marks[i] && d != 1 {
			return nil, fmt.Errorf("axis %d of dims %v does not have size 1", i, t.Dims)
		}
		if !marks[i] && (list != nil || d != 1) {
			dims = append(dims, d)
		}
	}
	return op.One(op.Reshaped(t, dims))
}

func runUnsqueeze(c *op.Call) ([]*execute.Tensor, error) {
	t, list := c.In[0], c.List(1, "axes")
	marks, err := op.Axes(list, len(t.Dims)+len(list))
	if err != nil {
		return nil, err
	}
	dims, rest := make([]int64, len(marks)), t.Dims
	for i, added := range marks {
		if added || len(rest) == 0 {
			dims[i] = 1
			continue
		}
		dims[i], rest = rest[0], rest[1:]
	}
	return op.One(op.Reshaped(t, dims))
}

func runExpand(c *op.Call) ([]*execute.Tensor, error) {
	dims, err := op.Broadcast(c.In[0].Dims, c.In[1].Int64s())
	if err != nil {
		return nil, err
	}
	if err := c.Room(c.In[0].DType, dims); err != nil {
		return nil, err
	}
	return op.One(c.Expand(c.In[0], dims))
}

func runConcat(c *op.Call) ([]*execute.Tensor, error) {
	if slices.Contains(c.In, nil) {
		return nil, op.ErrMissingInput
	}
	a, err := op.Axis(c.Int("axis", 1), len(c.In[0].Dims))
	if err != nil {
		return nil, err
	}
	return op.One(c.Concat(c.In, a))
}

func runSplit(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	a, err := op.Axis(c.Int("axis", 0), len(t.Dims))
	if err != nil {
		return nil, err
	}
	sizes := c.List(1, "split")
	if sizes == nil {
		n := int64(len(c.Node.Output))
		each := (t.Dims[a] + n - 1) / n
		for left := t.Dims[a]; len(sizes) < int(n); left -= each {
			sizes = append(sizes, max(min(each, left), 0))
		}
	}
	var parts []*execute.Tensor
	at := int64(0)
	for _, n := range sizes {
		if n < 0 || at+n > t.Dims[a] {
			return nil, fmt.Errorf("cannot split axis %d of dims %v into %v", a, t.Dims, sizes)
		}
		part, err := c.Slice(t, a, at, n)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		at += n
	}
	return parts, nil
}

func runSlice(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	starts, ends := c.List(1, "starts"), c.List(2, "ends")
	list, by := c.List(3, "axes"), c.List(4, "")
	if len(starts) != len(ends) || list != nil && len(list) != len(starts) || by != nil && len(by) != len(starts) {
		return nil, errors.New("starts, ends, axes and steps have different lengths")
	}
	dims, steps, start := slices.Clone(t.Dims), op.Strides(t.Dims), int64(0)
	for i := range starts {
		a, step := i, int64(1)
		if list != nil {
			var err error
			if a, err = op.Axis(list[i], len(dims)); err != nil {
				return nil, err
			}
		}
		if by != nil {
			step = by[i]
		}
		if a >= len(dims) || step == 0 {
			return nil, fmt.Errorf("axis %d of dims %v, or step %d", a, t.Dims, step)
		}
		from, n := shapes.Slice(starts[i], ends[i], step, t.Dims[a])
		start += from * steps[a]
		dims[a], steps[a] = n, steps[a]*step
	}
	return op.One(c.View(t, dims, steps, start))
}

func runPad(c *op.Call) ([]*execute.Tensor, error) {
	t, amounts := c.In[0], c.List(1, "pads")
	mode := c.Text("mode", "constant")
	if mode != "constant" && mirrors[mode] == nil {
		return nil, op.Unsupported("mode %q", mode)
	}
	rank := len(t.Dims)
	before, after := make([]int64, rank), make([]int64, rank)
	list := make([]int64, rank)
	for i := range list {
		list[i] = int64(i)
	}
	if chosen := c.Input(3); chosen != nil {
		list = chosen.Int64s()
	}
	if len(amounts) != 2*len(list) {
		return nil, fmt.Errorf("%d pads for %d axes", len(amounts), len(list))
	}
	for i, a := range list {
		k, err := op.Axis(a, rank)
		if err != nil {
			return nil, err
		}
		before[k], after[k] = amounts[i], amounts[len(list)+i]
	}
	padded := slices.Clone(t.Dims)
	for i := range padded {
		if padded[i] += max(before[i], 0) + max(after[i], 0); padded[i] < 0 {
			return nil, errors.New("its pads are too large")
		}
	}
	if err := c.Room(t.DType, padded); err != nil {
		return nil, err
	}
	if mode != "constant" {
		return op.One(mirrored(c, t, before, after, mirrors[mode]))
	}
	element := make([]byte, t.Size())
	if v := c.Input(2); v != nil {
		if v.DType != t.DType || v.Len() != 1 {
			return nil, op.ErrTypes
		}
		element = v.Data
	} else if c.Attribute("value") != nil {
		v, err := execute.FromFloat32s(t.DType, nil, []float32{c.Float("value", 0)})
		if err != nil {
			return nil, err
		}
		element = v.Data
	}
	return op.One(c.Pad(t, before, after, element))
}

func runGather(c *op.Call) ([]*execute.Tensor, error) {
	a, err := op.Axis(c.Int("axis", 0), len(c.In[0].Dims))
	if err != nil {
		return nil, err
	}
	t := c.In[0]
	if err := c.Room(t.DType, slices.Concat(t.Dims[:a], c.In[1].Dims, t.Dims[a+1:])); err != nil {
		return nil, err
	}
	return op.One(c.Gather(t, c.In[1], a))
}

func runDepthToSpace(c *op.Call) ([]*execute.Tensor, error) {
	t, b := c.In[0], c.Int("blocksize", 0)
	if len(t.Dims) != 4 || b < 1 || t.Dims[1]%(b*b) != 0 {
		return nil, fmt.Errorf("blocksize %d does not fit dims %v", b, t.Dims)
	}
	n, ch, h, w := t.Dims[0], t.Dims[1]/(b*b), t.Dims[2], t.Dims[3]
	dims, perm := []int64{n, b, b, ch, h, w}, []int{0, 3, 4, 1, 5, 2}
	if c.Text("mode", "DCR") == "CRD" {
		dims, perm = []int64{n, ch, b, b, h, w}, []int{0, 1, 4, 2, 5, 3}
	}
	t, err := op.Reshaped(t, dims)
	if err != nil {
		return nil, err
	}
	if t, err = c.Transpose(t, perm); err != nil {
		return nil, err
	}
	return op.One(op.Reshaped(t, []int64{n, ch, h * b, w * b}))
}

func runSame(c *op.Call) ([]*execute.Tensor, error) { return c.In[:1], nil }

// runDropout does nothing in inference. Its mask keeps all elements.
func runDropout(c *op.Call) ([]*execute.Tensor, error) {
	if t := c.Input(2); t != nil && t.Len() == 1 && t.Int64s()[0] != 0 {
		return nil, op.Unsupported("training_mode")
	}
	if !c.Wants(1) {
		return c.In[:1], nil
	}
	if c.Opset < 10 { // as ONNX Runtime: of the type of the input, and 0
		mask, err := c.Filled(c.In[0].DType, c.In[0].Dims, make([]byte, c.In[0].Size()))
		return []*execute.Tensor{c.In[0], mask}, err
	}
	mask, err := c.Filled(dtype.Bool, c.In[0].Dims, []byte{1})
	return []*execute.Tensor{c.In[0], mask}, err
}

// mirrors say which of n elements stands in for one before the first or behind the last.
var mirrors = map[string]func(i, n int64) int64{
	"edge": func(i, n int64) int64 { return min(max(i, 0), n-1) },
	"wrap": func(i, n int64) int64 { return (i%n + n) % n },
	"reflect": func(i, n int64) int64 {
		if n == 1 {
			return 0
		}
		i = (i%(2*n-2) + 2*n - 2) % (2*n - 2)
		return min(i, 2*n-2-i)
	},
}

// mirrored pads with elements of the tensor. Negative pads remove elements first.
func mirrored(c *op.Call, t *execute.Tensor, before, after []int64, from func(i, n int64) int64) (*execute.Tensor, error) {
	for a := range t.Dims {
		cut := []int64{min(before[a], 0), min(after[a], 0)}
		n := t.Dims[a] + cut[0] + cut[1]
		if n < 1 && max(before[a], after[a]) > 0 || n < 0 {
			return nil, fmt.Errorf("pads %d and %d of %d elements", before[a], after[a], t.Dims[a])
		}
		var places []int64
		for i := -max(before[a], 0); i < n+max(after[a], 0); i++ {
			places = append(places, from(i, max(n, 1))-cut[0])
		}
		var err error
		if t, err = c.Gather(t, op.Int64([]int64{int64(len(places))}, places), a); err != nil {
			return nil, err
		}
	}
	return t, nil
}
