package calib

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/internal/kernels"
)

// An Observer takes values batch by batch and returns a range for them.
type Observer interface {
	// Observe takes a part of the current batch. It fails with [ErrNotFinite] if a value
	// is not finite; the observer must not be used after that.
	Observe(x []float32) error
	// EndBatch ends the current batch. Only a moving average depends on it.
	EndBatch()
	// Range returns the range of all values so far, or [ErrEmpty].
	Range() (Range, error)
}

// checkFinite returns ErrNotFinite if a value is NaN or infinite.
func checkFinite(x []float32) error {
	if !kernels.IsFinite(kernels.AbsMax(0, x)) {
		return ErrNotFinite
	}
	return nil
}

// MinMax finds the minimum and maximum. The zero value is ready to use.
type MinMax struct {
	seen     bool
	min, max float32
}

// Observe takes values.
func (m *MinMax) Observe(x []float32) error {
	if len(x) == 0 {
		return nil
	}
	if err := checkFinite(x); err != nil {
		return err
	}
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	if m.seen {
		lo, hi = min(lo, m.min), max(hi, m.max)
	}
	m.seen, m.min, m.max = true, lo, hi
	return nil
}

// EndBatch does nothing.
func (m *MinMax) EndBatch() {}

// Range returns the minimum and maximum.
func (m *MinMax) Range() (Range, error) {
	if !m.seen {
		return Range{}, ErrEmpty
	}
	return Range{float64(m.min), float64(m.max)}, nil
}

// MovingAverage averages the minimum and maximum of batches.
type MovingAverage struct {
	momentum float64
	batches  int
	mean     Range
	batch    MinMax
}

// NewMovingAverage returns an observer that gives each batch the weight momentum, and the average so
// far 1 - momentum; 0 < momentum ≤ 1.
func NewMovingAverage(momentum float64) (*MovingAverage, error) {
	if !(momentum > 0 && momentum <= 1) {
		return nil, fmt.Errorf("momentum %v: want more than 0, at most 1", momentum)
	}
	return &MovingAverage{momentum: momentum}, nil
}

// Observe takes values of the current batch.
func (m *MovingAverage) Observe(x []float32) error { return m.batch.Observe(x) }

// EndBatch adds the batch to the average.
func (m *MovingAverage) EndBatch() {
	r, err := m.Range()
	if err != nil {
		return
	}
	if m.batch.seen {
		m.batches++
	}
	m.mean, m.batch = r, MinMax{}
}

// Range returns the average, including the current batch.
func (m *MovingAverage) Range() (Range, error) {
	r, err := m.batch.Range()
	switch {
	case err != nil && m.batches == 0:
		return Range{}, err
	case err != nil:
		return m.mean, nil
	case m.batches == 0:
		return r, nil
	}
	p := m.momentum
	mean := func(mean, next float64) float64 { return float64(mean*(1-p)) + float64(next*p) }
	return Range{mean(m.mean.Min, r.Min), mean(m.mean.Max, r.Max)}, nil
}

// Percentile finds a percentile, and cuts off as many values at the lower end as at the
// upper. It keeps every value, 4 bytes each; [Histogram] takes less memory.
type Percentile struct {
	p      float64
	values []float32
	sorted bool
}

// NewPercentile returns an observer of the p-th percentile, 50 ≤ p ≤ 100.
func NewPercentile(p float64) (*Percentile, error) {
	if err := checkPercentile(p); err != nil {
		return nil, err
	}
	return &Percentile{p: p}, nil
}

func checkPercentile(p float64) error {
	if !(p >= 50 && p <= 100) {
		return fmt.Errorf("percentile %v: want 50 to 100", p)
	}
	return nil
}

// Observe takes values.
func (c *Percentile) Observe(x []float32) error {
	if err := checkFinite(x); err != nil {
		return err
	}
	c.values, c.sorted = append(c.values, x...), false
	return nil
}

// EndBatch does nothing.
func (c *Percentile) EndBatch() {}

// Range returns the percentile and its mirror image.
func (c *Percentile) Range() (Range, error) {
	if len(c.values) == 0 {
		return Range{}, ErrEmpty
	}
	if !c.sorted {
		slices.Sort(c.values)
		c.sorted = true
	}
	i := PercentileIndex(c.p, int64(len(c.values)))
	last := int64(len(c.values)) - 1
	return Range{float64(c.values[last-i]), float64(c.values[i])}, nil
}

// PercentileIndex returns the index of the p-th percentile in n sorted values:
// min(⌊p/100·n⌋, n-1), but at least half of n-1.
func PercentileIndex(p float64, n int64) int64 {
	i := min(int64(p/100*float64(n)), n-1)
	return max(i, n-1-i)
}

// Method is a method to find ranges: minmax, percentile, moving-average, entropy or mse.
type Method struct {
	Name   string
	Number float64 // the percentile, or the momentum of the moving average
}

// Methods lists the spellings of methods.
var Methods = []string{"minmax", "percentile:P", "moving-average:P", "entropy", "mse"}

// ParseMethod parses minmax, percentile:P, moving-average:P, entropy or mse. P is 99.9 or
// 0.1 by default.
func ParseMethod(text string) (Method, error) {
	name, number, given := strings.Cut(text, ":")
	m := Method{Name: name}
	var err error
	if given {
		if m.Number, err = strconv.ParseFloat(number, 64); err != nil {
			return m, fmt.Errorf("range %q: %q is not a number", text, number)
		}
	}
	switch name {
	case "percentile":
		if !given {
			m.Number = 99.9
		}
		err = checkPercentile(m.Number)
	case "moving-average":
		if !given {
			m.Number = 0.1
		}
		_, err = NewMovingAverage(m.Number)
	case "minmax", "entropy", "mse":
		if given {
			err = fmt.Errorf("%s takes no number", name)
		}
	default:
		last := len(Methods) - 1
		err = fmt.Errorf("want %s or %s", strings.Join(Methods[:last], ", "), Methods[last])
	}
	if err != nil {
		return m, fmt.Errorf("range %q: %w", text, err)
	}
	return m, nil
}

// String writes the method as ParseMethod reads it.
func (m Method) String() string {
	if m.Name == "percentile" || m.Name == "moving-average" {
		return m.Name + ":" + strconv.FormatFloat(m.Number, 'g', -1, 64)
	}
	return m.Name
}

// Observer returns a new observer in bounded memory. Percentile, entropy and mse use a [Histogram] of
// the given precision, which takes up to 2^(precision+12) bytes. Entropy and mse find the best range
// for codes of the scheme.
func (m Method) Observer(s Scheme, precision int) (Observer, error) {
	switch m.Name {
	case "minmax":
		return &MinMax{}, nil
	case "moving-average":
		return NewMovingAverage(m.Number)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	h, err := NewHistogram(precision)
	if err != nil {
		return nil, err
	}
	switch m.Name {
	case "percentile":
		return histogramObserver{h, func() (Range, error) { return h.Percentile(m.Number) }}, checkPercentile(m.Number)
	case "entropy":
		return histogramObserver{h, func() (Range, error) { return h.Entropy(s) }}, checkEntropy(s)
	case "mse":
		return histogramObserver{h, func() (Range, error) { return h.MSE(s) }}, nil
	}
	return nil, fmt.Errorf("range %q: want %s", m.Name, strings.Join(Methods, ", "))
}

// histogramObserver is a histogram with another Range method.
type histogramObserver struct {
	*Histogram
	find func() (Range, error)
}

func (o histogramObserver) Range() (Range, error) { return o.find() }
