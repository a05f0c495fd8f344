package onnxq

import (
	"iter"
	"slices"

	"onnxquant/formats/dtype"
)

// spread says which scale goes with each element of a tensor. It is seen as
// [outer, k, inner]. Either blocks of the elements along k share a scale, and
// scales are [outer, ⌈k/block⌉, inner]; or there is one scale for each index of
// k, or one for all.
type spread struct {
	k, inner int64
	block    int64 // 0 where scales are a vector
	blocks   int64 // along k
	vector   bool
	single   bool
}

// oneScale spreads a single scale over all elements.
var oneScale = spread{k: 1, inner: 1, single: true}

// spreadOver finds how scales of a shape go with a tensor of a shape, whose axis
// is cut into blocks of that many elements, 0: not at all.
func spreadOver(shape, scale []int64, axis, block int64) (s spread, ok bool) {
	if n, _ := dtype.Elements(scale); n == 1 && (len(scale) <= 1 || block == 0) {
		return oneScale, true
	}
	if axis < 0 {
		axis += int64(len(shape))
	}
	if axis < 0 || axis >= int64(len(shape)) || block < 0 {
		return s, false
	}
	s = spread{k: shape[axis], inner: 1}
	for _, n := range shape[axis+1:] {
		s.inner *= n
	}
	if block == 0 {
		s.vector = true
		return s, slices.Equal(scale, shape[axis:axis+1])
	}
	s.block, s.blocks = block, divideUp(s.k, block)
	want := slices.Clone(shape)
	want[axis] = s.blocks
	return s, slices.Equal(scale, want)
}

// spreadBroadcast finds how the elements of one shape go with those of another
// that they are broadcast to, where that takes no more than a spread.
func spreadBroadcast(to, from []int64) (s spread, ok bool) {
	if n, _ := dtype.Elements(from); n == 1 {
		return oneScale, len(from) <= len(to)
	}
	if len(from) > len(to) {
		return s, false
	}
	from = append(slices.Repeat([]int64{1}, len(to)-len(from)), from...)
	first, last := len(to), 0 // of the axes that are repeated
	for i, n := range from {
		switch {
		case n == to[i]:
		case n == 1:
			first, last = min(first, i), i+1
		default:
			return s, false
		}
	}
	s = spread{k: 1, inner: 1}
	if first == len(to) { // none is
		s.block, s.blocks = 1, 1
		s.inner, _ = dtype.Elements(to)
		return s, true
	}
	for i, n := range to {
		switch {
		case i >= last:
			s.inner *= n
		case i >= first:
			if from[i] != 1 {
				return s, false
			}
			s.k *= n
		}
	}
	s.block, s.blocks = max(s.k, 1), 1
	return s, true
}

// stretchOfScales is a run of elements whose scales lie together, or are one:
// that of element from+i is first+i*step.
type stretchOfScales struct{ from, n, first, step int64 }

// runs yields the elements off, …, off+n-1 with their scales.
func (s spread) runs(off, n int64) iter.Seq[stretchOfScales] {
	return func(yield func(stretchOfScales) bool) {
		if s.single {
			yield(stretchOfScales{0, n, 0, 0})
			return
		}
		for from := int64(0); from < n; {
			at := off + from
			i, row := at%s.inner, at/s.inner
			kk, outer := row%s.k, row/s.k
			r := stretchOfScales{from: from, n: s.inner - i}
			switch {
			case s.vector && s.inner == 1:
				r.n, r.first, r.step = s.k-kk, kk, 1
			case s.vector:
				r.first = kk
			case s.inner == 1:
				r.n = min(s.block-kk%s.block, s.k-kk)
				r.first = outer*s.blocks + kk/s.block
			default:
				r.first, r.step = (outer*s.blocks+kk/s.block)*s.inner+i, 1
			}
			r.n = min(r.n, n-from)
			if !yield(r) {
				return
			}
			from += r.n
		}
	}
}

// extent returns the first scale and the number of scales from there on that the
// elements off, …, off+n-1 need.
func (s spread) extent(off, n int64) (first, count int64) {
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
