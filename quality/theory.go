package quality

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"onnxquant/calib"
)

// TheoreticalMaxError returns the largest possible error of a value within the range of
// the codes: half the largest scale.
func TheoreticalMaxError(params ...calib.Params) float64 {
	most := 0.0
	for _, p := range params {
		most = max(most, float64(p.Scale)/2)
	}
	return most
}

// TheoreticalSQNR returns the SQNR, in dB, of a full-scale sine.
func TheoreticalSQNR(bits int) float64 { return 6.02*float64(bits) + 1.76 }

// rounding bounds the error of float32 arithmetic, relative to the value.
const rounding = 0x1p-22

// WithinBounds reports whether each |x-y| is within its bound: half a scale, plus the
// distance of x from the range of the codes, plus 2^-22·|x| for rounding.
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

// Weighted yields values and their counts. Values makes it from a slice,
// calib.Histogram.All from a stream.
type Weighted = iter.Seq2[float64, uint64]

// Values yields each value with the count 1.
func Values(x []float32) Weighted {
	return func(yield func(float64, uint64) bool) {
		for _, v := range x {
			if !yield(float64(v), 1) {
				return
			}
		}
	}
}

// meanSquaredError returns the MSE of codes for values clamped to [-limit, limit].
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

// extremes returns the minimum and maximum.
func extremes(values Weighted) (calib.Range, error) {
	r := calib.Range{Min: math.Inf(1), Max: math.Inf(-1)}
	for v := range values {
		r = calib.Range{Min: min(r.Min, v), Max: max(r.Max, v)}
	}
	if !(r.Min <= r.Max) || math.IsInf(r.Min, 0) || math.IsInf(r.Max, 0) {
		return r, fmt.Errorf("want at least one value, and finite values only")
	}
	return r, nil
}

// ScaleSensitivity returns the relative change of the MSE of per-tensor codes for a
// relative change of their scale: (MSE(s·(1+change)) - MSE(s)) / MSE(s) / change. It is
// positive if a smaller scale would be better, negative if values are clamped, NaN if the
// MSE is 0.
func ScaleSensitivity(values Weighted, s calib.Scheme, change float64) (float64, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if change == 0 || !(change > -1) || math.IsInf(change, 1) {
		return 0, fmt.Errorf("relative change of scale %v: want more than -1, and not 0", change)
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

// OutlierImpact returns the MSE of per-tensor codes divided by the MSE after clamping the
// values to a percentile of their magnitudes, 0 < percentile ≤ 100. It is near 1 without
// outliers, NaN if both are 0, +Inf if only the second is 0.
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

// magnitude returns a percentile of magnitudes: number ⌊p/100·n⌋ of n sorted magnitudes.
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

// AccuracyRetention returns the accuracy of the quantized model in percent of the accuracy
// of the float model, which must be positive.
func AccuracyRetention(float, quantized float64) (float64, error) {
	if !(float > 0) || math.IsInf(float, 1) {
		return 0, fmt.Errorf("accuracy %v of the float model: want more than 0", float)
	}
	return 100 * quantized / float, nil
}
