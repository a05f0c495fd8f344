package qat

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"onnxquant/calib"
)

// Gradient is an estimator of the derivative of a quantized value.
type Gradient string

const (
	StraightThrough Gradient = "straight-through" // 1
	Clamped         Gradient = "clamped"          // 1 within the range of the codes, else 0
)

// FakeQuantizer replaces values by their dequantized codes. Set its fields before use; do
// not change them later. It is not safe for concurrent use.
type FakeQuantizer struct {
	Bits        int // 2 … 16
	Symmetric   bool
	Granularity calib.Granularity // default calib.PerTensor
	Channels    int               // number of channels, if per channel
	Group       int               // values per group, if per group
	Gradient    Gradient          // default StraightThrough

	params []calib.Params
	n      int // values of a calibrated tensor
}

func (f *FakeQuantizer) scheme() calib.Scheme {
	return calib.Scheme{Bits: f.Bits, Symmetric: f.Symmetric, Narrow: true}
}

// share returns how many of n values share a scale.
func (f *FakeQuantizer) share(n int) (int, error) {
	if err := f.scheme().Validate(); err != nil {
		return 0, err
	}
	switch f.Gradient {
	case "", StraightThrough, Clamped:
	default:
		return 0, fmt.Errorf("gradient %q: want straight-through or clamped", f.Gradient)
	}
	return cmp.Or(f.Granularity, calib.PerTensor).Share(n, f.Channels, f.Group)
}

// Calibrate sets scales and zero points from the minimum and maximum of x, whose values
// must be finite. Without it, the first Forward calibrates.
func (f *FakeQuantizer) Calibrate(x []float32) error {
	if len(x) == 0 {
		return calib.ErrEmpty
	}
	share, err := f.share(len(x))
	if err != nil {
		return err
	}
	var params []calib.Params
	for at := 0; at < len(x); at += share {
		var o calib.MinMax
		if err := o.Observe(x[at:min(at+share, len(x))]); err != nil {
			return err
		}
		r, _ := o.Range()
		params = append(params, f.scheme().Params(r))
	}
	f.params, f.n = params, len(x)
	return nil
}

// SetParams sets scales and zero points, for example from an observer of package calib: one for each
// channel or group of tensors with n values.
func (f *FakeQuantizer) SetParams(n int, params ...calib.Params) error {
	share, err := f.share(n)
	if err != nil {
		return err
	}
	if want := (n-1)/share + 1; n < 1 || len(params) != want {
		return fmt.Errorf("%d scales for %d values, want %d", len(params), n, want)
	}
	for _, p := range params {
		if !(p.Scale > 0) || math.IsInf(float64(p.Scale), 0) || p.Lo >= p.Hi || p.ZeroPoint < p.Lo || p.ZeroPoint > p.Hi {
			return fmt.Errorf("invalid scale %v or zero point %d for codes %d … %d", p.Scale, p.ZeroPoint, p.Lo, p.Hi)
		}
	}
	f.params, f.n = append([]calib.Params(nil), params...), n
	return nil
}

// Params returns the scales and zero points, or none before calibration.
func (f *FakeQuantizer) Params() []calib.Params { return append([]calib.Params(nil), f.params...) }

var errUncalibrated = errors.New("the quantizer is not calibrated; call Calibrate or Forward first")

// ready checks that n values can be quantized, and returns how many share a scale.
func (f *FakeQuantizer) ready(n int) (int, error) {
	if f.params == nil {
		return 0, errUncalibrated
	}
	if len(f.params) > 1 && n != f.n || (f.Granularity == calib.PerChannel || f.Granularity == calib.PerGroup) && n != f.n {
		return 0, fmt.Errorf("%d values, but the quantizer is calibrated for %d", n, f.n)
	}
	return f.share(n)
}

// Forward sets each y[i] to the dequantized code of x[i]; y may be x. NaN becomes 0.
func (f *FakeQuantizer) Forward(y, x []float32) error {
	if f.params == nil {
		if err := f.Calibrate(x); err != nil {
			return err
		}
	}
	share, err := f.ready(len(x))
	if err != nil {
		return err
	}
	if len(y) < len(x) {
		return fmt.Errorf("%d results for %d values", len(y), len(x))
	}
	for i, p := range f.params {
		at, end := min(i*share, len(x)), min((i+1)*share, len(x))
		p.FakeQuantize(y[at:end], x[at:end])
	}
	return nil
}

// Backward sets each dx[i], the gradient by x[i], from dy[i], the gradient by y[i]; dx may
// be dy. x are the inputs of Forward.
func (f *FakeQuantizer) Backward(dx, dy, x []float32) error {
	share, err := f.ready(len(x))
	if err != nil {
		return err
	}
	if len(dy) != len(x) || len(dx) < len(x) {
		return fmt.Errorf("dy has %d values and dx room for %d, want %d", len(dy), len(dx), len(x))
	}
	if f.Gradient != Clamped {
		copy(dx, dy)
		return nil
	}
	for i, v := range x {
		p := f.params[i/share]
		q := math.RoundToEven(float64(v/p.Scale)) + float64(p.ZeroPoint)
		if q >= float64(p.Lo) && q <= float64(p.Hi) {
			dx[i] = dy[i]
		} else {
			dx[i] = 0
		}
	}
	return nil
}
