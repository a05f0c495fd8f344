package qat

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"onnxquant/calib"
)

// Gradient is a way to take the derivative of a rounded value.
type Gradient string

const (
	StraightThrough Gradient = "straight-through" // 1
	Clamped         Gradient = "clamped"          // 1 within the codes, 0 beyond
)

// FakeQuantizer replaces values by what their codes stand for. Its fields are set before
// use and then stay. It may not be used by several goroutines at once.
type FakeQuantizer struct {
	Bits        int // 2 … 16
	Symmetric   bool
	Granularity calib.Granularity // default calib.PerTensor
	Channels    int               // per channel
	Group       int               // values, per group
	Gradient    Gradient          // default StraightThrough

	params []calib.Params
	n      int // values of the tensors, per channel and per group
}

// scheme is the codes'.
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

// Calibrate sets scales and zero points by the extremes of x, whose values are finite. A
// quantizer that has not been calibrated does it by the first values it sees.
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

// SetParams sets scales and zero points, one for each channel or group of tensors of n
// values, for example those of an observer of package calib.
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
			return fmt.Errorf("scale %v with zero point %d of codes %d … %d makes no sense", p.Scale, p.ZeroPoint, p.Lo, p.Hi)
		}
	}
	f.params, f.n = append([]calib.Params(nil), params...), n
	return nil
}

// Params returns the scales and zero points, none before calibration.
func (f *FakeQuantizer) Params() []calib.Params { return append([]calib.Params(nil), f.params...) }

var errUncalibrated = errors.New("the quantizer has seen no values yet")

// ready checks that n values can be quantized, and returns how many share a scale.
func (f *FakeQuantizer) ready(n int) (int, error) {
	if f.params == nil {
		return 0, errUncalibrated
	}
	if len(f.params) > 1 && n != f.n || (f.Granularity == calib.PerChannel || f.Granularity == calib.PerGroup) && n != f.n {
		return 0, fmt.Errorf("%d values, but %d were calibrated", n, f.n)
	}
	return f.share(n)
}

// Forward sets each y[i] to what the code of x[i] stands for; y may be x. NaN becomes 0.
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

// Backward sets each dx[i] to the gradient by x[i], from dy[i], that by the value which
// Forward made of it; dx may be dy. x are the values that went into Forward.
func (f *FakeQuantizer) Backward(dx, dy, x []float32) error {
	share, err := f.ready(len(x))
	if err != nil {
		return err
	}
	if len(dy) != len(x) || len(dx) < len(x) {
		return fmt.Errorf("%d gradients and room for %d, for %d values", len(dy), len(dx), len(x))
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
