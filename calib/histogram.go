package calib

import (
	"fmt"
	"iter"
	"math"

	"onnxquant/internal/kernels"
)

// Histogram counts values in buckets. A bucket is all float32 values with the same sign,
// exponent and leading bits of the fraction. So the relative width of a bucket of normal
// numbers is at most 2^-precision, and the order of the values does not matter. There are
// 512 pages, one for each sign and exponent, with 2^precision counts of 8 bytes; a page
// is allocated when a value falls into it.
//
// As an [Observer] it returns the exact minimum and maximum.
type Histogram struct {
	precision int
	pages     [512][]uint64
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

// Observe counts values.
func (h *Histogram) Observe(x []float32) error {
	if err := h.extremes.Observe(x); err != nil {
		return err
	}
	drop := fractionBits - h.precision
	mask := uint32(1)<<h.precision - 1
	for _, v := range x {
		u := kernels.Ordered(v)
		page := h.pages[u>>fractionBits]
		if page == nil {
			page = make([]uint64, mask+1)
			h.pages[u>>fractionBits] = page
		}
		page[u>>drop&mask]++
	}
	h.n += uint64(len(x))
	return nil
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
	h.n += g.n
	h.extremes.Observe([]float32{g.extremes.min, g.extremes.max})
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

// buckets yields the buckets that are not empty, in ascending order, clipped to the
// minimum and maximum. The bucket of 0, which also has tiny subnormals, counts as 0.
func (h *Histogram) buckets() iter.Seq[bucket] {
	return func(yield func(bucket) bool) {
		drop := fractionBits - h.precision
		least, greatest := float64(h.extremes.min), float64(h.extremes.max)
		zero := kernels.Ordered(0)
		for i, page := range h.pages {
			for j, n := range page {
				if n == 0 {
					continue
				}
				first := uint32(i)<<fractionBits | uint32(j)<<drop
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
