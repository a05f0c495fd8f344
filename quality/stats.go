package quality

import (
	"encoding/json"
	"fmt"
	"math"

	"onnxquant/formats/errstat"
)

// Stats has the error measures of the package comment.
type Stats struct {
	N        int64   `json:"n"`
	MSE      float64 `json:"mse"`
	MAE      float64 `json:"mae"`
	RMSE     float64 `json:"rmse"`
	MaxError float64 `json:"max_error"`
	SQNR     float64 `json:"sqnr_db"`
	Outliers float64 `json:"outliers"` // share, 0 … 1
}

// MarshalJSON writes an SQNR of +Inf as 999, of -Inf as -999, and of NaN as null.
func (s Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	if math.IsNaN(s.SQNR) {
		return json.Marshal(struct {
			plain
			SQNR any `json:"sqnr_db"`
		}{plain(s), nil})
	}
	s.SQNR = min(max(s.SQNR, -errstat.Exact), errstat.Exact)
	return json.Marshal(plain(s))
}

// Sums adds up errors. The zero value is ready to use.
type Sums struct {
	Threshold float64 // errors above it are outliers; 0: no outliers

	n, outliers       int64
	sqErr, absErr, sq sum
	maxErr            float64
}

// Add adds the errors of the dequantized values y of x. It panics if y is shorter.
func (s *Sums) Add(x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		e := math.Abs(float64(v) - float64(y[i]))
		s.sqErr.add(e * e)
		s.absErr.add(e)
		s.sq.add(float64(v) * float64(v))
		if !(e <= s.maxErr) { // NaN, too
			s.maxErr = e
		}
		if s.Threshold > 0 && e > s.Threshold {
			s.outliers++
		}
	}
	s.n += int64(len(x))
}

// Merge adds the sums of t.
func (s *Sums) Merge(t *Sums) {
	s.n += t.n
	s.outliers += t.outliers
	s.sqErr.merge(t.sqErr)
	s.absErr.merge(t.absErr)
	s.sq.merge(t.sq)
	s.maxErr = max(s.maxErr, t.maxErr)
}

// Stats returns the measures of all values added.
func (s *Sums) Stats() Stats {
	if s.n == 0 {
		return Stats{SQNR: math.NaN()}
	}
	n := float64(s.n)
	mse := s.sqErr.value() / n
	return Stats{
		N: s.n, MSE: mse, MAE: s.absErr.value() / n, RMSE: math.Sqrt(mse), MaxError: s.maxErr,
		SQNR: decibels(s.sq.value(), s.sqErr.value()), Outliers: float64(s.outliers) / n,
	}
}

// Noise returns Σe²/Σx², or 0 without errors.
func (s *Sums) Noise() float64 {
	if s.sqErr.value() == 0 {
		return 0
	}
	return s.sqErr.value() / s.sq.value()
}

func decibels(signal, noise float64) float64 {
	switch {
	case noise == 0:
		return math.Inf(1)
	case signal == 0:
		return math.Inf(-1)
	}
	return 10 * math.Log10(signal/noise)
}

// sum is a compensated sum (Neumaier).
type sum struct{ total, lost float64 }

func (s *sum) add(v float64) {
	t := s.total + v
	if math.Abs(s.total) >= math.Abs(v) {
		s.lost += (s.total - t) + v
	} else {
		s.lost += (v - t) + s.total
	}
	s.total = t
}

func (s *sum) merge(t sum) {
	s.add(t.total)
	s.lost += t.lost
}

func (s sum) value() float64 {
	if math.IsInf(s.total, 0) || math.IsNaN(s.total) {
		return s.total
	}
	return s.total + s.lost
}

// Measure returns the errors of the dequantized values y of x. Errors above the threshold are
// outliers; 0 counts none. It panics if y is shorter than x.
func Measure(x, y []float32, threshold float64) Stats {
	s := Sums{Threshold: threshold}
	s.Add(x, y)
	return s.Stats()
}

// ByChannel returns the errors of each channel. x and y have one row per channel, all of
// equal length.
func ByChannel(x, y []float32, channels int, threshold float64) ([]Stats, error) {
	if channels < 1 || len(x)%channels != 0 || len(x) == 0 {
		return nil, fmt.Errorf("%d values cannot be %d equal channels", len(x), channels)
	}
	return ByGroup(x, y, len(x)/channels, threshold)
}

// ByGroup returns the errors of each group of values. The last group may be shorter.
func ByGroup(x, y []float32, group int, threshold float64) ([]Stats, error) {
	if group < 1 {
		return nil, fmt.Errorf("groups of %d values: want at least 1", group)
	}
	if len(y) != len(x) {
		return nil, fmt.Errorf("%d dequantized values for %d values", len(y), len(x))
	}
	var all []Stats
	for at := 0; at < len(x); at += group {
		end := min(at+group, len(x))
		all = append(all, Measure(x[at:end], y[at:end], threshold))
	}
	return all, nil
}
