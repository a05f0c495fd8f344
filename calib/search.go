package calib

import (
	"fmt"
	"math"
)

// The squared-error search tries ranges in steps of 1/100 of the minimum and maximum.
const (
	gridSteps = 100
	gridLeast = 4
)

// MSE returns the range with the least squared error of codes of the scheme. Each value counts as the
// middle of its bucket. It multiplies the minimum and maximum by 1, 0.99, … 0.04: first both; then, if
// the scheme is asymmetric, the maximum alone and the minimum alone. Of equal errors, the widest range
// wins.
func (h *Histogram) MSE(s Scheme) (Range, error) {
	if err := s.Validate(); err != nil {
		return Range{}, err
	}
	whole, err := h.Range()
	if err != nil {
		return Range{}, err
	}
	var values []bucket
	for b := range h.buckets() {
		values = append(values, b)
	}
	best, least := whole, math.Inf(1)
	try := func(at func(f float64) Range) {
		for k := gridSteps; k >= gridLeast; k-- {
			r := at(float64(k) / gridSteps)
			if e := squaredError(values, s.Params(r)); e < least {
				best, least = r, e
			}
		}
	}
	try(func(f float64) Range { return Range{whole.Min * f, whole.Max * f} })
	if !s.Symmetric {
		low := best.Min
		try(func(f float64) Range { return Range{low, whole.Max * f} })
		high := best.Max
		try(func(f float64) Range { return Range{whole.Min * f, high} })
	}
	return best, nil
}

// squaredError returns the sum of squared errors.
func squaredError(values []bucket, p Params) float64 {
	scale, zero := float64(p.Scale), float64(p.ZeroPoint)
	lo, hi := float64(p.Lo), float64(p.Hi)
	sum := 0.0
	for _, b := range values {
		x := b.value()
		q := min(max(math.RoundToEven(x/scale)+zero, lo), hi)
		d := x - float64((q-zero)*scale)
		sum += float64(float64(d*d) * float64(b.n))
	}
	return sum
}

// The divergence search uses bins of equal width.
const (
	divergenceBins = 2048
	smoothing      = 1e-4 // minimum of a bin, relative to the mean of the bins
)

func checkEntropy(s Scheme) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Bits > 8 {
		return fmt.Errorf("entropy for codes of %d bits: want 2 to 8", s.Bits)
	}
	return nil
}

// Entropy returns the clipping range [-t, t], limited to the minimum and maximum, with the least
// Kullback-Leibler divergence between the magnitudes before and after quantization (Migacz, 8-bit
// inference with TensorRT, 2017). The scheme has at most 8 bits.
//
// Magnitudes are counted in 2048 bins up to the largest. For each i ≥ 2^(bits-1), it compares two
// distributions over the first i bins. The first is the counts, with all magnitudes above added to the
// last bin. The second is the counts merged into 2^(bits-1) levels, each spread evenly over its
// non-empty bins. Each bin counts at least 1e-4 of the mean. t is the middle of the best bin i.
func (h *Histogram) Entropy(s Scheme) (Range, error) {
	if err := checkEntropy(s); err != nil {
		return Range{}, err
	}
	whole, err := h.Range()
	if err != nil {
		return Range{}, err
	}
	peak := max(-whole.Min, whole.Max)
	if peak == 0 {
		return whole, nil
	}
	bins := h.linear(peak)
	levels := 1 << (s.Bits - 1)
	above := 0.0
	best, least := len(bins), math.Inf(1)
	for i := len(bins); i >= levels; i-- {
		if d := divergence(bins[:i], above, levels); d < least {
			best, least = i, d
		}
		above += bins[i-1]
	}
	t := peak
	if best < len(bins) {
		t = (float64(best) + 0.5) * peak / divergenceBins
	}
	return Range{max(whole.Min, -t), min(whole.Max, t)}, nil
}

// linear counts magnitudes in bins of equal width up to peak, the largest. A bucket that
// overlaps several bins is divided among them.
func (h *Histogram) linear(peak float64) []float64 {
	bins := make([]float64, divergenceBins)
	for b := range h.buckets() {
		lo, hi := math.Abs(b.lo)/peak*divergenceBins, math.Abs(b.hi)/peak*divergenceBins
		lo, hi = min(lo, hi), max(lo, hi)
		first, last := min(int(lo), divergenceBins-1), min(int(hi), divergenceBins-1)
		if first == last {
			bins[first] += float64(b.n)
			continue
		}
		for i := first; i <= last; i++ {
			part := (min(hi, float64(i+1)) - max(lo, float64(i))) / (hi - lo)
			bins[i] += float64(max(part, 0) * float64(b.n))
		}
	}
	return bins
}

// divergence returns the divergence between bins, with above added to the last bin, and the same bins
// merged into levels.
func divergence(bins []float64, above float64, levels int) float64 {
	p := append([]float64(nil), bins...)
	p[len(p)-1] += above
	q := make([]float64, len(bins))
	for l := range levels {
		first, end := l*len(bins)/levels, (l+1)*len(bins)/levels
		sum, filled := 0.0, 0
		for i := first; i < end; i++ {
			sum += bins[i]
			if p[i] > 0 {
				filled++
			}
		}
		for i := first; i < end; i++ {
			if p[i] > 0 {
				q[i] = sum / float64(filled)
			}
		}
	}
	smooth(p)
	smooth(q)
	sum := 0.0
	for i, v := range p {
		sum += float64(v * math.Log(v/q[i]))
	}
	return sum
}

// smooth turns counts into a distribution without zeros.
func smooth(p []float64) {
	total := 0.0
	for _, v := range p {
		total += v
	}
	if total == 0 {
		total = 1
	}
	sum := 0.0
	for i, v := range p {
		p[i] = max(v/total, smoothing/float64(len(p)))
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
}
