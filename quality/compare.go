package quality

import (
	"fmt"

	"onnxquant/calib"
)

// Setting is a way to quantize values.
type Setting struct {
	calib.Scheme
	Granularity calib.Granularity
	Group       int // values per group; used per group only
}

// String names the setting, such as "4 bits symmetric per group of 32".
func (s Setting) String() string {
	mode := "asymmetric"
	if s.Symmetric {
		mode = "symmetric"
	}
	text := fmt.Sprintf("%d bits %s per %s", s.Bits, mode, s.Granularity)
	if s.Granularity == calib.PerGroup {
		text += fmt.Sprintf(" of %d", s.Group)
	}
	return text
}

// share returns how many values share a scale.
func (s Setting) share(n, channels int) (int, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	if n == 0 || channels < 1 || n%channels != 0 {
		return 0, fmt.Errorf("%d values cannot be %d equal channels", n, channels)
	}
	return s.Granularity.Share(n, channels, s.Group)
}

// Quantize returns the dequantized values of x, and the scale and zero point of each tensor, channel
// or group, from its minimum and maximum. x must be finite and has one row per channel.
func (s Setting) Quantize(x []float32, channels int) (y []float32, params []calib.Params, err error) {
	share, err := s.share(len(x), channels)
	if err != nil {
		return nil, nil, err
	}
	y = make([]float32, len(x))
	for at := 0; at < len(x); at += share {
		end := min(at+share, len(x))
		var o calib.MinMax
		if err := o.Observe(x[at:end]); err != nil {
			return nil, nil, err
		}
		r, _ := o.Range()
		p := s.Params(r)
		p.FakeQuantize(y[at:end], x[at:end])
		params = append(params, p)
	}
	return y, params, nil
}

// Compression returns the size of n float32 values divided by the size of their codes (Bits
// each), scales (32 bits each) and zero points (Bits each).
func (s Setting) Compression(n, channels int) (float64, error) {
	share, err := s.share(n, channels)
	if err != nil {
		return 0, err
	}
	scales := (n-1)/share + 1
	extra := 32
	if !s.Symmetric {
		extra += s.Bits
	}
	return 32 * float64(n) / float64(n*s.Bits+scales*extra), nil
}

// Comparison compares quantized with float values.
type Comparison struct {
	Setting      Setting
	Stats        Stats
	WithinBounds bool    // no error is larger than in theory
	MaxError     float64 // in theory: half the largest scale
	Compression  float64 // size as float32 by quantized size
}

// Compare quantizes x, which has one row per channel, with each setting.
func Compare(x []float32, channels int, settings ...Setting) ([]Comparison, error) {
	var all []Comparison
	for _, s := range settings {
		y, params, err := s.Quantize(x, channels)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", s, err)
		}
		share, _ := s.share(len(x), channels)
		within := true
		for i, p := range params {
			at, end := i*share, min((i+1)*share, len(x))
			within = within && WithinBounds(x[at:end], y[at:end], p)
		}
		compression, _ := s.Compression(len(x), channels)
		all = append(all, Comparison{s, Measure(x, y, 0), within, TheoreticalMaxError(params...), compression})
	}
	return all, nil
}

// CompareBits quantizes x with each number of bits; with 4 and 8 if none is given.
func CompareBits(x []float32, channels int, s Setting, bits ...int) ([]Comparison, error) {
	if len(bits) == 0 {
		bits = []int{4, 8}
	}
	var settings []Setting
	for _, b := range bits {
		s.Bits = b
		settings = append(settings, s)
	}
	return Compare(x, channels, settings...)
}

// CompareGranularities quantizes x per tensor, per channel and per group.
func CompareGranularities(x []float32, channels int, s calib.Scheme, group int) ([]Comparison, error) {
	return Compare(x, channels, Setting{s, calib.PerTensor, 0}, Setting{s, calib.PerChannel, 0}, Setting{s, calib.PerGroup, group})
}
