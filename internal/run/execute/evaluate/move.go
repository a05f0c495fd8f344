package evaluate

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/shapes"
)

func runTranspose(c *call) ([]*execute.Tensor, error) {
	rank := len(c.in[0].Dims)
	perm := make([]int, rank)
	for i := range perm {
		perm[i] = rank - 1 - i
	}
	if list := c.ints("perm", nil); list != nil {
		marks, err := axes(list, rank)
		if err != nil || len(list) != rank || slices.Contains(marks, false) {
			return nil, fmt.Errorf("invalid perm %v for %d dimensions", list, rank)
		}
		for i, p := range list {
			perm[i] = int(p)
		}
	}
	return oneOutput(transpose(c.in[0], perm))
}

func runReshape(c *call) ([]*execute.Tensor, error) {
	t, want := c.in[0], c.list(1, "shape")
	dims := slices.Clone(want)
	open := -1
	for i, d := range dims {
		switch {
		case d == 0 && c.int("allowzero", 0) == 0:
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
	if n := product(dims); open >= 0 && n > 0 {
		dims[open] = int64(t.Len()) / n
	}
	return oneOutput(reshaped(t, dims))
}

func runFlatten(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	a := c.int("axis", 1)
	if a < 0 {
		a += int64(len(t.Dims))
	}
	if a < 0 || a > int64(len(t.Dims)) {
		return nil, fmt.Errorf("axis %d of a tensor with %d dimensions", a, len(t.Dims))
	}
	return oneOutput(reshaped(t, []int64{product(t.Dims[:a]), product(t.Dims[a:])}))
}

func runSqueeze(c *call) ([]*execute.Tensor, error) {
	t, list := c.in[0], c.list(1, "axes")
	marks, err := axes(list, len(t.Dims))
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
	return oneOutput(reshaped(t, dims))
}

func runUnsqueeze(c *call) ([]*execute.Tensor, error) {
	t, list := c.in[0], c.list(1, "axes")
	marks, err := axes(list, len(t.Dims)+len(list))
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
	return oneOutput(reshaped(t, dims))
}

func runExpand(c *call) ([]*execute.Tensor, error) {
	dims, err := broadcast(c.in[0].Dims, c.in[1].Int64s())
	if err != nil {
		return nil, err
	}
	if err := c.checkRoom(c.in[0].DType, dims); err != nil {
		return nil, err
	}
	return oneOutput(expand(c.in[0], dims))
}

func runConcat(c *call) ([]*execute.Tensor, error) {
	if slices.Contains(c.in, nil) {
		return nil, errMissingInput
	}
	a, err := axis(c.int("axis", 1), len(c.in[0].Dims))
	if err != nil {
		return nil, err
	}
	return oneOutput(concat(c.in, a))
}

func runSplit(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	a, err := axis(c.int("axis", 0), len(t.Dims))
	if err != nil {
		return nil, err
	}
	sizes := c.list(1, "split")
	if sizes == nil {
		n := int64(len(c.node.Output))
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
		part, err := slice(t, a, at, n)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		at += n
	}
	return parts, nil
}

func runSlice(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	starts, ends := c.list(1, "starts"), c.list(2, "ends")
	list, by := c.list(3, "axes"), c.list(4, "")
	if len(starts) != len(ends) || list != nil && len(list) != len(starts) || by != nil && len(by) != len(starts) {
		return nil, errors.New("starts, ends, axes and steps have different lengths")
	}
	dims, steps, start := slices.Clone(t.Dims), strides(t.Dims), int64(0)
	for i := range starts {
		a, step := i, int64(1)
		if list != nil {
			var err error
			if a, err = axis(list[i], len(dims)); err != nil {
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
	return oneOutput(view(t, dims, steps, start))
}

func runPad(c *call) ([]*execute.Tensor, error) {
	t, amounts := c.in[0], c.list(1, "pads")
	if mode := c.text("mode", "constant"); mode != "constant" && mode != "reflect" {
		return nil, unsupported("mode %q", mode)
	}
	rank := len(t.Dims)
	before, after := make([]int64, rank), make([]int64, rank)
	list := make([]int64, rank)
	for i := range list {
		list[i] = int64(i)
	}
	if chosen := c.input(3); chosen != nil {
		list = chosen.Int64s()
	}
	if len(amounts) != 2*len(list) {
		return nil, fmt.Errorf("%d pads for %d axes", len(amounts), len(list))
	}
	for i, a := range list {
		k, err := axis(a, rank)
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
	if err := c.checkRoom(t.DType, padded); err != nil {
		return nil, err
	}
	if c.text("mode", "constant") == "reflect" {
		return oneOutput(reflect(t, before, after))
	}
	element := make([]byte, t.Size())
	if v := c.input(2); v != nil {
		if v.DType != t.DType || v.Len() != 1 {
			return nil, errTypes
		}
		element = v.Data
	} else if c.attribute("value") != nil {
		v, err := execute.FromFloat32s(t.DType, nil, []float32{c.float("value", 0)})
		if err != nil {
			return nil, err
		}
		element = v.Data
	}
	return oneOutput(pad(t, before, after, element))
}

// gather copies the slices of t at the indices along an axis.
func gather(t, indices *execute.Tensor, a int) (*execute.Tensor, error) {
	dims := slices.Concat(t.Dims[:a], indices.Dims, t.Dims[a+1:])
	out, err := execute.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	outer, n, inner := product(t.Dims[:a]), t.Dims[a], product(t.Dims[a+1:])*int64(t.Size())
	to := out.Data
	list := indices.Int64s()
	for o := range outer {
		for _, i := range list {
			if i < 0 {
				i += n
			}
			if i < 0 || i >= n {
				return nil, fmt.Errorf("index %d is out of range for %d elements", i, n)
			}
			at := (o*n + i) * inner
			to = to[copy(to, t.Data[at:at+inner]):]
		}
	}
	return out, nil
}

func runGather(c *call) ([]*execute.Tensor, error) {
	a, err := axis(c.int("axis", 0), len(c.in[0].Dims))
	if err != nil {
		return nil, err
	}
	t := c.in[0]
	if err := c.checkRoom(t.DType, slices.Concat(t.Dims[:a], c.in[1].Dims, t.Dims[a+1:])); err != nil {
		return nil, err
	}
	return oneOutput(gather(t, c.in[1], a))
}

func runDepthToSpace(c *call) ([]*execute.Tensor, error) {
	t, b := c.in[0], c.int("blocksize", 0)
	if len(t.Dims) != 4 || b < 1 || t.Dims[1]%(b*b) != 0 {
		return nil, fmt.Errorf("blocksize %d does not fit dims %v", b, t.Dims)
	}
	n, ch, h, w := t.Dims[0], t.Dims[1]/(b*b), t.Dims[2], t.Dims[3]
	dims, perm := []int64{n, b, b, ch, h, w}, []int{0, 3, 4, 1, 5, 2}
	if c.text("mode", "DCR") == "CRD" {
		dims, perm = []int64{n, ch, b, b, h, w}, []int{0, 1, 4, 2, 5, 3}
	}
	t, err := reshaped(t, dims)
	if err != nil {
		return nil, err
	}
	if t, err = transpose(t, perm); err != nil {
		return nil, err
	}
	return oneOutput(reshaped(t, []int64{n, ch, h * b, w * b}))
}

func runIf(c *call) ([]*execute.Tensor, error) {
	if c.in[0].Len() != 1 {
		return nil, errors.New("its condition is not a scalar")
	}
	branch := "else_branch"
	if c.in[0].Int64s()[0] != 0 {
		branch = "then_branch"
	}
	g := c.attribute(branch).GetG()
	if g == nil {
		return nil, errors.New("it has no attribute " + branch)
	}
	return c.graph(newScope(c.scope, g), g)
}

// runSame is for operators that do nothing in inference.
func runSame(c *call) ([]*execute.Tensor, error) {
	if t := c.input(2); t != nil && c.node.GetOpType() == "Dropout" && t.Len() == 1 && t.Int64s()[0] != 0 {
		return nil, unsupported("training_mode")
	}
	return c.in[:1], nil
}
