package quality

import (
	"fmt"

	"onnxquant/calib"
)

// Setting is a way to quantize values.
type Setting struct {
	calib.Scheme
	Granularity calib.Granularity
	Group       int // values of a group; meaningful per group
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
		return 0, fmt.Errorf("%d values are not %d channels", n, channels)
	}
	return s.Granularity.Share(n, channels, s.Group)
}

// Quantize returns what the codes of x stand for, and the scale and zero point of each
// tensor, channel or group. Ranges are the extremes. x, which is finite, is so many rows.
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

// Compression returns how many times fewer bits n values in so many channels take than
// as float32: each has its code, each scale 32 bits, each zero point those of a code.
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

// Comparison is what a setting does to some values.
type Comparison struct {
	Setting      Setting
	Stats        Stats
	WithinBounds bool    // no error is larger than theory has it
	MaxError     float64 // of theory: half the largest scale
	Compression  float64 // of float32
}

// Compare quantizes x, so many rows, by each setting.
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

// CompareBits quantizes x by each number of bits, 4 and 8 if none is given.
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

// CompareGranularities quantizes x per tensor, per channel and per group of so many.
func CompareGranularities(x []float32, channels int, s calib.Scheme, group int) ([]Comparison, error) {
	return Compare(x, channels, Setting{s, calib.PerTensor, 0}, Setting{s, calib.PerChannel, 0}, Setting{s, calib.PerGroup, group})
}
