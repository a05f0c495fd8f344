package reach

import (
	"cmp"
	"slices"

	"onnxquant/internal/shapes"
)

// layout describes a view of a stored tensor: the same elements behind Transpose, Reshape
// and the like. Each axis of the view is a list of strides over the stored tensor, the
// last one fastest.
type layout struct {
	Axes [][]stride
	lost string // why the layout is unknown, or ""
}

// stride is size elements of the stored tensor, step elements apart.
type stride struct {
	axis       int // of the stored tensor; the outermost, if it spans several
	size, step int64
}

// layoutOf returns the layout of the stored tensor itself.
func layoutOf(shape []int64) layout {
	l := layout{Axes: make([][]stride, len(shape))}
	step := int64(1)
	for i, n := range slices.Backward(shape) {
		l.Axes[i] = []stride{{i, n, step}}
		step *= n
	}
	return l
}

// shape returns the length of each axis.
func (l layout) shape() (dims []int64) {
	for i := range l.Axes {
		dims = append(dims, l.dim(i))
	}
	return dims
}

// dim returns the length of an axis.
func (l layout) dim(axis int) int64 {
	n := int64(1)
	for _, s := range l.Axes[axis] {
		n *= s.size
	}
	return n
}

// permuted returns the axes in the order of perm. It is not ok if perm is no permutation.
func (l layout) permuted(perm []int64) (layout, bool) {
	next := make([][]stride, len(l.Axes))
	seen := make([]bool, len(l.Axes))
	if len(perm) != len(l.Axes) {
		return l, false
	}
	for i, p := range perm {
		if p < 0 || p >= int64(len(l.Axes)) || seen[p] {
			return l, false
		}
		seen[p] = true
		next[i] = l.Axes[p]
	}
	return layout{Axes: next}, true
}

// reshaped returns the layout with another shape. Each stride must fall into one axis, or
// be split between two; adjacent strides may be merged. Otherwise it is not ok.
func (l layout) reshaped(shape []int64) (layout, bool) {
	var rest []stride
	for _, axis := range l.Axes {
		for _, s := range axis {
			if s.size == 0 {
				return l, false
			}
			if s.size > 1 {
				rest = append(rest, s)
			}
		}
	}
	next := layout{Axes: make([][]stride, len(shape))}
	for i, need := range shape {
		for need > 1 {
			if len(rest) == 0 {
				return l, false
			}
			s := &rest[0]
			switch {
			case need%s.size == 0:
				next.Axes[i] = append(next.Axes[i], *s)
				need /= s.size
				rest = rest[1:]
			case s.size%need == 0:
				s.size /= need
				next.Axes[i] = append(next.Axes[i], stride{s.axis, need, s.size * s.step})
				need = 1
			case len(rest) > 1 && s.step == rest[1].step*rest[1].size:
				rest[1] = stride{s.axis, s.size * rest[1].size, rest[1].step}
				rest = rest[1:]
			default:
				return l, false
			}
		}
		if need < 1 {
			return l, false
		}
	}
	return next, len(rest) == 0
}

// Operand says how an operator sums over a weight: along axis Axis of shape View. View is
// the shape of the stored tensor, or that shape with neighboring axes merged.
type Operand struct {
	Axis int
	View []int64
}

// sum finds the operand of an operator that sums over axes of the layout; shape is the stored tensor's
// shape. Blocks run along the longest contiguous run of the reduced strides. With whole, the axes
// before and after that run are merged; without, only if the run is not exactly one stored axis. ok is
// false if the operator sums over no axis.
func (l layout) sum(axes []int, shape []int64, whole bool) (o Operand, ok bool) {
	if shapes.Count(shape) == 0 {
		return Operand{0, shape}, true
	}
	var strides []stride
	for _, a := range axes {
		strides = append(strides, l.Axes[a]...)
	}
	if len(strides) == 0 {
		return o, false
	}
	slices.SortFunc(strides, func(a, b stride) int { return cmp.Or(cmp.Compare(a.axis, b.axis), cmp.Compare(b.step, a.step)) })
	first, last := strides[0], strides[0] // of the longest contiguous run
	k := int64(0)
	for len(strides) > 0 {
		n, size := 1, strides[0].size
		for n < len(strides) && strides[n-1].step == strides[n].step*strides[n].size {
			size *= strides[n].size
			n++
		}
		if size >= k {
			first, last, k = strides[0], strides[n-1], size
		}
		strides = strides[n:]
	}
	if !whole && first.axis == last.axis && shape[first.axis] == k && last.step == shapes.Count(shape[first.axis+1:]) {
		return Operand{first.axis, shape}, true
	}
	if outer := shapes.Count(shape) / (k * last.step); outer > 1 || first.axis > 0 {
		o.View, o.Axis = []int64{outer}, 1
	}
	o.View = append(o.View, k)
	if last.step > 1 {
		o.View = append(o.View, last.step)
	}
	return o, true
}

// Stacked reports whether the tensor is read as matrices [N, rows, columns], in the order in which it is stored.
func (l layout) Stacked(n, rows, columns int64) bool {
	dims := l.shape()
	for len(dims) > 3 && dims[0] == 1 {
		dims = dims[1:]
	}
	if len(dims) == 2 && n == 1 {
		dims = slices.Insert(dims, 0, n)
	}
	if !slices.Equal(dims, []int64{n, rows, columns}) {
		return false
	}
	step := int64(1)
	for _, s := range slices.Backward(slices.Concat(l.Axes...)) {
		if s.size > 1 && s.step != step {
			return false
		}
		step *= s.size
	}
	return true
}

// Straight reports whether the elements along each axis are equally spaced.
func (l layout) Straight() bool {
	for _, axis := range l.Axes {
		for i := range len(axis) - 1 {
			if axis[i].step != axis[i+1].step*axis[i+1].size {
				return false
			}
		}
	}
	return true
}

// Turns reports whether the layout is the transpose of a stored matrix of this shape.
func (l layout) Turns(shape []int64) bool {
	own := layoutOf(shape).Axes
	return len(own) == 2 && len(l.Axes) == 2 && slices.Equal(l.Axes[0], own[1]) && slices.Equal(l.Axes[1], own[0])
}

// Is reports whether the layout is the stored tensor's own, for this shape.
func (l layout) Is(shape []int64) bool {
	return slices.EqualFunc(l.Axes, layoutOf(shape).Axes, slices.Equal[[]stride])
}
