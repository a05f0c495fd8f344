package lazy

import (
	"iter"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/shapes"
)

// ScaleMap maps each element of a tensor, seen as [outer, K, inner], to its scale. There is one scale
// for all elements (Single), one for each index of K (a vector), or one for each block along K: scales
// are then [outer, ⌈K/Block⌉, inner].
type ScaleMap struct {
	K, Inner int64
	Block    int64 // elements per block along K; 0 for a vector
	Blocks   int64 // blocks along K
	vector   bool
	Single   bool
}

// OneScale maps all elements to one scale.
var OneScale = ScaleMap{K: 1, Inner: 1, Single: true}

// MapBlocks maps the elements of a tensor to scales as DequantizeLinear does. block is its block_size;
// 0 means a single scale, or one for each index of the axis. ok is false if the shapes do not fit.
func MapBlocks(shape, scale []int64, axis, block int64) (s ScaleMap, ok bool) {
	if n, _ := dtype.Elements(scale); n == 1 && (len(scale) <= 1 || block == 0) {
		return OneScale, true
	}
	if axis < 0 {
		axis += int64(len(shape))
	}
	if axis < 0 || axis >= int64(len(shape)) || block < 0 {
		return s, false
	}
	s = ScaleMap{K: shape[axis], Inner: 1}
	for _, n := range shape[axis+1:] {
		s.Inner *= n
	}
	if block == 0 {
		s.vector = true
		return s, slices.Equal(scale, shape[axis:axis+1])
	}
	s.Block, s.Blocks = block, shapes.DivideUp(s.K, block)
	want := slices.Clone(shape)
	want[axis] = s.Blocks
	return s, slices.Equal(scale, want)
}

// MapBroadcast maps the elements of shape to to the elements of shape from, which broadcasts to it. ok
// is false unless the broadcast axes are adjacent.
func MapBroadcast(to, from []int64) (s ScaleMap, ok bool) {
	if n, _ := dtype.Elements(from); n == 1 {
		return OneScale, len(from) <= len(to)
	}
	if len(from) > len(to) {
		return s, false
	}
	from = append(slices.Repeat([]int64{1}, len(to)-len(from)), from...)
	first, last := len(to), 0 // range of the axes that are broadcast
	for i, n := range from {
		switch {
		case n == to[i]:
		case n == 1:
			first, last = min(first, i), i+1
		default:
			return s, false
		}
	}
	s = ScaleMap{K: 1, Inner: 1}
	if first == len(to) { // none
		s.Block, s.Blocks = 1, 1
		s.Inner, _ = dtype.Elements(to)
		return s, true
	}
	for i, n := range to {
		switch {
		case i >= last:
			s.Inner *= n
		case i >= first:
			if from[i] != 1 {
				return s, false
			}
			s.K *= n
		}
	}
	s.Block, s.Blocks = max(s.K, 1), 1
	return s, true
}

// scaleRun is a run of n elements: element from+i has scale first+i*step, where step is
// 0 or 1.
type scaleRun struct{ from, n, first, step int64 }

// runs splits the elements off, …, off+n-1 into runs. from counts from off.
func (s ScaleMap) runs(off, n int64) iter.Seq[scaleRun] {
	return func(yield func(scaleRun) bool) {
		if s.Single {
			yield(scaleRun{0, n, 0, 0})
			return
		}
		for from := int64(0); from < n; {
			at := off + from
			i, row := at%s.Inner, at/s.Inner
			kk, outer := row%s.K, row/s.K
			r := scaleRun{from: from, n: s.Inner - i}
			switch {
			case s.vector && s.Inner == 1:
				r.n, r.first, r.step = s.K-kk, kk, 1
			case s.vector:
				r.first = kk
			case s.Inner == 1:
				r.n = min(s.Block-kk%s.Block, s.K-kk)
				r.first = outer*s.Blocks + kk/s.Block
			default:
				r.first, r.step = (outer*s.Blocks+kk/s.Block)*s.Inner+i, 1
			}
			r.n = min(r.n, n-from)
			if !yield(r) {
				return
			}
			from += r.n
		}
	}
}

// extent returns the range of scales that the elements off, …, off+n-1 use.
func (s ScaleMap) extent(off, n int64) (first, count int64) {
	end := int64(0)
	started := false
	for r := range s.runs(off, n) {
		last := r.first + (r.n-1)*r.step + 1
		if !started {
			first, end, started = r.first, last, true
		}
		first, end = min(first, r.first), max(end, last)
	}
	return first, end - first
}
