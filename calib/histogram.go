package calib

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"onnxquant/internal/kernels"
)

// Histogram counts values in buckets. A bucket has all float32 values with the same sign, exponent and
// leading bits of the fraction. So the relative width of a bucket of normal numbers is at most
// 2^-precision, and the order of the values does not matter. There are 512 pages, one for each sign and
// exponent, with 2^precision counts of 8 bytes. A page is allocated when a value falls into it. The
// first values are kept in a list until there are too many.
//
// As an [Observer] it returns the exact minimum and maximum.
type Histogram struct {
	precision int
	few       []uint32   // all values, as kernels.Ordered gives them; nil once there are pages
	pages     [][]uint64 // nil: the values are in few
	n         uint64
	extremes  MinMax
}

// NewHistogram returns a histogram that keeps precision bits of the fraction, 1 … 16. With
// 12 bits the relative width of a bucket is 1/4096, and memory at most 16 MiB.
func NewHistogram(precision int) (*Histogram, error) {
	if precision < 1 || precision > 16 {
		return nil, fmt.Errorf("precision of %d bits: want 1 to 16", precision)
	}
	return &Histogram{precision: precision}, nil
}

const fractionBits = 23

// mostFew is the most values that are kept in a list.
const mostFew = 1 << 10

// Observe counts values.
func (h *Histogram) Observe(x []float32) error {
	if err := h.extremes.Observe(x); err != nil {
		return err
	}
	h.n += uint64(len(x))
	if h.pages == nil && h.n <= mostFew {
		for _, v := range x {
			h.few = append(h.few, kernels.Ordered(v))
		}
		return nil
	}
	h.spread()
	for _, v := range x {
		h.add(kernels.Ordered(v))
	}
	return nil
}

// spread counts the values of the list on pages.
func (h *Histogram) spread() {
	if h.pages != nil {
		return
	}
	h.pages = make([][]uint64, 512)
	for _, u := range h.few {
		h.add(u)
	}
	h.few = nil
}

// add counts an ordered value on its page.
func (h *Histogram) add(u uint32) {
	page := h.pages[u>>fractionBits]
	if page == nil {
		page = make([]uint64, 1<<h.precision)
		h.pages[u>>fractionBits] = page
	}
	page[u>>(fractionBits-h.precision)&(1<<h.precision-1)]++
}

// EndBatch does nothing.
func (h *Histogram) EndBatch() {}

// Merge adds the counts of g. It panics if the precisions differ.
func (h *Histogram) Merge(g *Histogram) {
	if h.precision != g.precision {
		panic("calib: Merge of histograms of different precision")
	}
	if g.n == 0 {
		return
	}
	h.extremes.Observe([]float32{g.extremes.min, g.extremes.max})
	h.n += g.n
	if h.pages == nil && h.n <= mostFew {
		h.few = append(h.few, g.few...)
		return
	}
	h.spread()
	for _, u := range g.few {
		h.add(u)
	}
	for i, page := range g.pages {
		if page == nil {
			continue
		}
		if h.pages[i] == nil {
			h.pages[i] = make([]uint64, len(page))
		}
		for j, n := range page {
			h.pages[i][j] += n
		}
	}
}

// Count returns the number of values seen.
func (h *Histogram) Count() int64 { return int64(h.n) }

// Range returns the minimum and maximum.
func (h *Histogram) Range() (Range, error) { return h.extremes.Range() }

// bucket is a count of the values from lo to hi.
type bucket struct {
	lo, hi float64
	n      uint64
}

// value returns the middle of the bucket, which represents all its values.
func (b bucket) value() float64 { return (b.lo + b.hi) / 2 }

// buckets yields the non-empty buckets in ascending order, clipped to the minimum and maximum. The
// bucket with 0 and tiny subnormals counts as 0.
func (h *Histogram) buckets() iter.Seq[bucket] {
	return func(yield func(bucket) bool) {
		drop := fractionBits - h.precision
		least, greatest := float64(h.extremes.min), float64(h.extremes.max)
		zero := kernels.Ordered(0)
		for first, n := range h.counts() {
			b := bucket{float64(kernels.FromOrdered(first)), float64(kernels.FromOrdered(first + 1<<drop - 1)), n}
			if first == zero {
				b.lo, b.hi = 0, 0
			}
			b.lo = min(max(b.lo, least), greatest)
			b.hi = min(max(b.hi, least), greatest)
			if !yield(b) {
				return
			}
		}
	}
}

// counts yields the first ordered value and the count of each bucket that is not empty.
func (h *Histogram) counts() iter.Seq2[uint32, uint64] {
	drop := fractionBits - h.precision
	return func(yield func(uint32, uint64) bool) {
		few := slices.Clone(h.few)
		slices.Sort(few)
		for i := 0; i < len(few); {
			first, from := few[i]>>drop<<drop, i
			for i < len(few) && few[i]>>drop<<drop == first {
				i++
			}
			if !yield(first, uint64(i-from)) {
				return
			}
		}
		for i, page := range h.pages {
			for j, n := range page {
				if n > 0 && !yield(uint32(i)<<fractionBits|uint32(j)<<drop, n) {
					return
				}
			}
		}
	}
}

// All yields the middle and the count of each bucket that is not empty, in ascending order.
func (h *Histogram) All() iter.Seq2[float64, uint64] {
	return func(yield func(float64, uint64) bool) {
		for b := range h.buckets() {
			if !yield(b.value(), b.n) {
				return
			}
		}
	}
}

// At returns the value at index i of all values sorted, 0 ≤ i < Count. Its relative error
// is at most 2^-(precision+1); the first and the last value are exact.
func (h *Histogram) At(i int64) float64 {
	switch {
	case i <= 0:
		return float64(h.extremes.min)
	case uint64(i) >= h.n-1:
		return float64(h.extremes.max)
	}
	for b := range h.buckets() {
		if uint64(i) < b.n {
			return b.value()
		}
		i -= int64(b.n)
	}
	return float64(h.extremes.max)
}

// Percentile returns the range of [Percentile], with the error of At.
func (h *Histogram) Percentile(p float64) (Range, error) {
	if err := checkPercentile(p); err != nil {
		return Range{}, err
	}
	if h.n == 0 {
		return Range{}, ErrEmpty
	}
	i := PercentileIndex(p, int64(h.n))
	return Range{h.At(int64(h.n) - 1 - i), h.At(i)}, nil
}

// Above returns the share, 0 … 1, of values whose magnitude is above the limit. The middle
// of a bucket decides for all its values.
func (h *Histogram) Above(limit float64) float64 {
	if h.n == 0 {
		return 0
	}
	above := uint64(0)
	for b := range h.buckets() {
		if math.Abs(b.value()) > limit {
			above += b.n
		}
	}
	return float64(above) / float64(h.n)
}
