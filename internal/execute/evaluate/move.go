package evaluate

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/execute"
)

// strides returns the distance of neighbours along each axis, in elements.
func strides(dims []int64) []int64 {
	s := make([]int64, len(dims))
	n := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

// each calls f for every index of a tensor with the given dims, in row-major order. i and
// j are the sums of the index times the strides a and b.
func each(dims, a, b []int64, f func(i, j int64)) {
	if product(dims) == 0 {
		return
	}
	at := make([]int64, len(dims))
	i, j := int64(0), int64(0)
	for {
		f(i, j)
		k := len(dims) - 1
		for ; k >= 0; k-- {
			at[k]++
			i += a[k]
			j += b[k]
			if at[k] < dims[k] {
				break
			}
			i -= a[k] * dims[k]
			j -= b[k] * dims[k]
			at[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// view copies the elements of t at start + Σ index·steps. A step of 0 repeats elements, a
// negative one reverses them.
func view(t *execute.Tensor, dims, steps []int64, start int64) (*execute.Tensor, error) {
	out, err := execute.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	size := int64(t.Size())
	each(dims, strides(dims), steps, func(i, j int64) {
		copy(out.Data[i*size:(i+1)*size], t.Data[(start+j)*size:])
	})
	return out, nil
}

// paste is the inverse of view: it copies the elements of t into out.
func paste(out, t *execute.Tensor, steps []int64, start int64) {
	size := int64(t.Size())
	each(t.Dims, strides(t.Dims), steps, func(i, j int64) {
		copy(out.Data[(start+j)*size:(start+j+1)*size], t.Data[i*size:])
	})
}

func filled(typ dtype.DType, dims []int64, element []byte) (*execute.Tensor, error) {
	t, err := execute.New(typ, dims)
	if err == nil {
		for word := range slices.Chunk(t.Data, max(len(element), 1)) {
			copy(word, element)
		}
	}
	return t, err
}

// broadcast returns the common shape of tensors with the given shapes.
func broadcast(shapes ...[]int64) ([]int64, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	dims := slices.Repeat([]int64{1}, rank)
	for _, s := range shapes {
		for i, d := range s {
			k := rank - len(s) + i
			if dims[k] != 1 && d != 1 && d != dims[k] {
				return nil, fmt.Errorf("cannot broadcast shapes %v", shapes)
			}
			if dims[k] == 1 {
				dims[k] = d
			}
		}
	}
	return dims, nil
}

// expand broadcasts t to dims.
func expand(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if slices.Equal(t.Dims, dims) {
		return t, nil
	}
	lead := len(dims) - len(t.Dims)
	steps := make([]int64, len(dims))
	for i, s := range strides(t.Dims) {
		if t.Dims[i] != 1 {
			steps[lead+i] = s
		}
	}
	return view(t, dims, steps, 0)
}

func transpose(t *execute.Tensor, perm []int) (*execute.Tensor, error) {
	from := strides(t.Dims)
	dims, steps := make([]int64, len(perm)), make([]int64, len(perm))
	for i, p := range perm {
		dims[i], steps[i] = t.Dims[p], from[p]
	}
	return view(t, dims, steps, 0)
}

// slice copies n elements along an axis, from start on.
func slice(t *execute.Tensor, axis int, start, n int64) (*execute.Tensor, error) {
	dims := slices.Clone(t.Dims)
	dims[axis] = n
	s := strides(t.Dims)
	return view(t, dims, s, start*s[axis])
}

// pad adds elements at both ends of each axis. A negative number removes elements.
func pad(t *execute.Tensor, before, after []int64, element []byte) (*execute.Tensor, error) {
	for i := range t.Dims {
		if cut := max(-before[i], 0) + max(-after[i], 0); cut > 0 {
			if cut > t.Dims[i] {
				return nil, errors.New("negative pads remove more elements than there are")
			}
			var err error
			if t, err = slice(t, i, max(-before[i], 0), t.Dims[i]-cut); err != nil {
				return nil, err
			}
		}
	}
	dims := slices.Clone(t.Dims)
	for i := range dims {
		dims[i] += max(before[i], 0) + max(after[i], 0)
	}
	out, err := filled(t.DType, dims, element)
	if err != nil {
		return nil, err
	}
	start := int64(0)
	s := strides(dims)
	for i := range dims {
		start += max(before[i], 0) * s[i]
	}
	paste(out, t, s, start)
	return out, nil
}

func concat(parts []*execute.Tensor, a int) (*execute.Tensor, error) {
	dims := slices.Clone(parts[0].Dims)
	for _, p := range parts[1:] {
		if len(p.Dims) != len(dims) || p.DType != parts[0].DType {
			return nil, errTypes
		}
		for i, d := range p.Dims {
			if i != a && d != dims[i] {
				return nil, fmt.Errorf("cannot concatenate dims %v and %v", dims, p.Dims)
			}
		}
		dims[a] += p.Dims[a]
	}
	out, err := execute.New(parts[0].DType, dims)
	if err != nil {
		return nil, err
	}
	s := strides(dims)
	at := int64(0)
	for _, p := range parts {
		paste(out, p, s, at*s[a])
		at += p.Dims[a]
	}
	return out, nil
}

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
	return one(transpose(c.in[0], perm))
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
	return one(reshaped(t, dims))
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
	return one(reshaped(t, []int64{product(t.Dims[:a]), product(t.Dims[a:])}))
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
	return one(reshaped(t, dims))
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
	return one(reshaped(t, dims))
}

func runExpand(c *call) ([]*execute.Tensor, error) {
	dims, err := broadcast(c.in[0].Dims, c.in[1].Int64s())
	if err != nil {
		return nil, err
	}
	if err := c.room(c.in[0].DType, dims); err != nil {
		return nil, err
	}
	return one(expand(c.in[0], dims))
}

func runConcat(c *call) ([]*execute.Tensor, error) {
	if slices.Contains(c.in, nil) {
		return nil, errMissingInput
	}
	a, err := axis(c.int("axis", 1), len(c.in[0].Dims))
	if err != nil {
		return nil, err
	}
	return one(concat(c.in, a))
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
		from, n := sliceRange(starts[i], ends[i], step, t.Dims[a])
		start += from * steps[a]
		dims[a], steps[a] = n, steps[a]*step
	}
	return one(view(t, dims, steps, start))
}

// sliceRange returns the first index and the number of elements of a slice of d elements.
// Negative bounds count from the end; bounds are clamped.
func sliceRange(from, to, step, d int64) (first, n int64) {
	if from < 0 {
		from += d
	}
	if to < 0 {
		to += d
	}
	if step > 0 {
		from, to = min(max(from, 0), d), min(max(to, 0), d)
		return from, max((to-from+step-1)/step, 0)
	}
	from, to = min(max(from, 0), d-1), min(max(to, -1), d-1)
	return from, max((from-to-step-1)/-step, 0)
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
	if err := c.room(t.DType, padded); err != nil {
		return nil, err
	}
	if c.text("mode", "constant") == "reflect" {
		return one(reflect(t, before, after))
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
	return one(pad(t, before, after, element))
}

// reflect pads with mirrored elements.
func reflect(t *execute.Tensor, before, after []int64) (*execute.Tensor, error) {
	for a := range t.Dims {
		n := t.Dims[a]
		if before[a] < 0 || after[a] < 0 || before[a] >= n || after[a] >= n {
			return nil, fmt.Errorf("pads %d and %d in mode reflect: there must be more elements, not %d", before[a], after[a], n)
		}
		places := make([]int64, 0, n+before[a]+after[a])
		for i := -before[a]; i < n+after[a]; i++ {
			j := max(i, -i)
			places = append(places, min(j, 2*(n-1)-j))
		}
		index, err := execute.FromInt64s(dtype.Int64, []int64{int64(len(places))}, places)
		if err != nil {
			return nil, err
		}
		if t, err = gather(t, index, a); err != nil {
			return nil, err
		}
	}
	return t, nil
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
	if err := c.room(t.DType, slices.Concat(t.Dims[:a], c.in[1].Dims, t.Dims[a+1:])); err != nil {
		return nil, err
	}
	return one(gather(t, c.in[1], a))
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
	return one(reshaped(t, []int64{n, ch, h * b, w * b}))
}

func runShape(c *call) ([]*execute.Tensor, error) {
	dims := c.in[0].Dims
	rank := int64(len(dims))
	bound := func(i int64) int64 {
		if i < 0 {
			i += rank
		}
		return min(max(i, 0), rank)
	}
	from, to := bound(c.int("start", 0)), bound(c.int("end", rank))
	dims = dims[from:max(from, to)]
	return one(execute.FromInt64s(dtype.Int64, []int64{int64(len(dims))}, dims))
}

func runRange(c *call) ([]*execute.Tensor, error) {
	if c.in[0].IsFloat() {
		return nil, unsupported("elements of type %v", c.in[0].DType)
	}
	for _, t := range c.in[:3] {
		if t.Len() != 1 {
			return nil, errors.New("its inputs are not scalars")
		}
	}
	from, to, by := c.in[0].Int64s()[0], c.in[1].Int64s()[0], c.in[2].Int64s()[0]
	if by == 0 {
		return nil, errors.New("delta is 0")
	}
	n := max((to-from)/by, 0)
	if n > 0 && (to-from)%by != 0 || n == 0 && (to-from)*by > 0 {
		n++
	}
	if err := c.room(dtype.Int64, []int64{n}); err != nil {
		return nil, err
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = from + int64(i)*by
	}
	return one(execute.FromInt64s(c.in[0].DType, []int64{n}, list))
}

func runConstant(c *call) ([]*execute.Tensor, error) {
	a := c.node.Attribute[0]
	switch a.GetName() {
	case "value":
		return one(c.load(a.GetT()))
	case "value_int":
		return one(execute.FromInt64s(dtype.Int64, nil, []int64{a.GetI()}))
	case "value_ints":
		return one(execute.FromInt64s(dtype.Int64, []int64{int64(len(a.GetInts()))}, a.GetInts()))
	case "value_float":
		return one(execute.FromFloat32s(dtype.Float32, nil, []float32{a.GetF()}))
	}
	return one(execute.FromFloat32s(dtype.Float32, []int64{int64(len(a.GetFloats()))}, a.GetFloats()))
}

func runConstantOfShape(c *call) ([]*execute.Tensor, error) {
	element, dims := &execute.Tensor{DType: dtype.Float32, Data: make([]byte, 4)}, c.in[0].Int64s()
	if a := c.attribute("value"); a != nil {
		var err error
		if element, err = c.load(a.GetT()); err != nil {
			return nil, err
		}
	}
	if err := c.room(element.DType, dims); err != nil {
		return nil, err
	}
	return one(filled(element.DType, dims, element.Data))
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
