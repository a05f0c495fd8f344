package quality

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"onnxquant/calib"
)

// TheoreticalMaxError returns the most that a value within the range of codes is off:
// half the largest scale.
func TheoreticalMaxError(params ...calib.Params) float64 {
	most := 0.0
	for _, p := range params {
		most = max(most, float64(p.Scale)/2)
	}
	return most
}

// TheoreticalSQNR returns the SQNR, in dB, of a full-scale sine in so many bits.
func TheoreticalSQNR(bits int) float64 { return 6.02*float64(bits) + 1.76 }

// rounding is what float32 arithmetic may add to an error, as a part of the value.
const rounding = 0x1p-22

// WithinBounds reports whether no y is off by more than it may be: half a step, and what
// its x lies beyond the range of the codes. 2^-22 of x is added for the arithmetic.
func WithinBounds(x, y []float32, p calib.Params) bool {
	y = y[:len(x)]
	covers := p.Covers()
	for i, v := range x {
		x := float64(v)
		bound := float64(p.Scale)/2 + max(covers.Min-x, x-covers.Max, 0) + math.Abs(x)*rounding
		if !(math.Abs(x-float64(y[i])) <= bound) {
			return false
		}
	}
	return true
}

// Weighted is a collection of values, each with how often it occurs: Values of a slice,
// or calib.Histogram.All of a stream.
type Weighted = iter.Seq2[float64, uint64]

// Values yields each value once.
func Values(x []float32) Weighted {
	return func(yield func(float64, uint64) bool) {
		for _, v := range x {
			if !yield(float64(v), 1) {
				return
			}
		}
	}
}

// meanSquaredError of codes, with values cut off at a limit before.
func meanSquaredError(values Weighted, p calib.Params, limit float64) float64 {
	var sqErr sum
	n := uint64(0)
	for v, count := range values {
		v = min(max(v, -limit), limit)
		e := v - float64(p.Dequantize(p.Quantize(float32(v))))
		sqErr.add(e * e * float64(count))
		n += count
	}
	if n == 0 {
		return 0
	}
	return sqErr.value() / float64(n)
}

// extremes returns the range of values.
func extremes(values Weighted) (calib.Range, error) {
	r := calib.Range{Min: math.Inf(1), Max: math.Inf(-1)}
	for v := range values {
		r = calib.Range{Min: min(r.Min, v), Max: max(r.Max, v)}
	}
	if !(r.Min <= r.Max) || math.IsInf(r.Min, 0) || math.IsInf(r.Max, 0) {
		return r, fmt.Errorf("want finite values, at least one")
	}
	return r, nil
}

// ScaleSensitivity returns the relative change of the MSE of per-tensor codes for a
// relative change of their scale: (MSE(s·(1+change)) - MSE(s)) / MSE(s) / change. It is
// above 0 where finer steps would be better, below 0 where values are cut off; NaN if there
// is no error.
func ScaleSensitivity(values Weighted, s calib.Scheme, change float64) (float64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if change == 0 || !(change > -1) || math.IsInf(change, 1) {
		return 0, fmt.Errorf("change of scale by %v: want more than -1, and not 0", change)
	}
	r, err := extremes(values)
	if err != nil {
		return 0, err
	}
	p := s.Params(r)
	before := meanSquaredError(values, p, math.Inf(1))
	p.Scale = float32(float64(p.Scale) * (1 + change))
	return (meanSquaredError(values, p, math.Inf(1)) - before) / before / change, nil
}

// OutlierImpact returns how many times larger the MSE of per-tensor codes is than it would
// be if values were cut off at a percentile, 0 < p ≤ 100, of their magnitudes: near 1
// without outliers. It is NaN if neither has an error, +Inf if only the latter has none.
func OutlierImpact(values Weighted, s calib.Scheme, percentile float64) (float64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if !(percentile > 0 && percentile <= 100) {
		return 0, fmt.Errorf("percentile %v: want more than 0, at most 100", percentile)
	}
	r, err := extremes(values)
	if err != nil {
		return 0, err
	}
	limit := magnitude(values, percentile)
	cut := calib.Range{Min: max(r.Min, -limit), Max: min(r.Max, limit)}
	return meanSquaredError(values, s.Params(r), math.Inf(1)) / meanSquaredError(values, s.Params(cut), limit), nil
}

// magnitude returns a percentile of magnitudes: of n in order, the one at ⌊p/100·n⌋.
func magnitude(values Weighted, percentile float64) float64 {
	type counted struct {
		v float64
		n uint64
	}
	var all []counted
	n := uint64(0)
	for v, count := range values {
		all = append(all, counted{math.Abs(v), count})
		n += count
	}
	slices.SortFunc(all, func(a, b counted) int {
		switch {
		case a.v < b.v:
			return -1
		case a.v > b.v:
			return 1
		}
		return 0
	})
	at := min(uint64(percentile/100*float64(n)), n-1)
	for _, c := range all {
		if at < c.n {
			return c.v
		}
		at -= c.n
	}
	return 0
}

// AccuracyRetention returns how many percent of a model's accuracy are left: 100 times
// that of the quantized model by that of the float model, which is above 0.
func AccuracyRetention(float, quantized float64) (float64, error) {
	if !(float > 0) || math.IsInf(float, 1) {
		return 0, fmt.Errorf("accuracy %v of the float model: want more than 0", float)
	}
	return 100 * quantized / float, nil
}
