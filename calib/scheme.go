package calib

import (
	"errors"
	"fmt"
	"math"
)

// Range is an interval of values.
type Range struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// ErrEmpty says that no value was observed, so there is no range.
var ErrEmpty = errors.New("no values were observed")

// ErrNotFinite says that a value is NaN or infinite.
var ErrNotFinite = errors.New("a value is NaN or infinite")

// Scheme describes integer codes.
type Scheme struct {
	Bits      int  // 2 … 16
	Symmetric bool // signed codes without zero point, else unsigned codes with one
	Narrow    bool // symmetric codes without the least one: -127 … 127
}

// Validate returns an error if the number of bits is not supported.
func (s Scheme) Validate() error {
	if s.Bits < 2 || s.Bits > 16 {
		return fmt.Errorf("codes of %d bits: want 2 to 16", s.Bits)
	}
	return nil
}

// Codes returns the least and the greatest code.
func (s Scheme) Codes() (lo, hi int32) {
	switch n := int32(1) << s.Bits; {
	case !s.Symmetric:
		return 0, n - 1
	case s.Narrow:
		return 1 - n/2, n/2 - 1
	default:
		return -n / 2, n/2 - 1
	}
}

// leastScale keeps the scale of a range of zeros from being 0.
const leastScale = 1e-10

// Params returns the scale and zero point of codes that cover r, as in the package
// comment. The scheme must be valid and r finite.
func (s Scheme) Params(r Range) Params {
	lo, hi := s.Codes()
	r = Range{min(r.Min, 0), max(r.Max, 0)}
	p := Params{Lo: lo, Hi: hi}
	if s.Symmetric {
		p.Scale = scale(max(-r.Min, r.Max) / float64(hi))
		return p
	}
	p.Scale = scale(r.Max/float64(hi) - r.Min/float64(hi))
	zero := math.RoundToEven(-r.Min / float64(p.Scale))
	p.ZeroPoint = int32(min(max(zero, float64(lo)), float64(hi)))
	return p
}

func scale(s float64) float32 { return float32(min(max(s, leastScale), math.MaxFloat32)) }

// Params maps between values and codes.
type Params struct {
	Scale     float32 `json:"scale"`      // difference of the values of neighbouring codes
	ZeroPoint int32   `json:"zero_point"` // the code of 0
	Lo        int32   `json:"lo"`         // the least code
	Hi        int32   `json:"hi"`         // the greatest code
}

// Quantize returns the code of x. NaN gets the code of 0.
func (p Params) Quantize(x float32) int32 {
	q := math.RoundToEven(float64(x/p.Scale)) + float64(p.ZeroPoint)
	if q != q {
		return p.ZeroPoint
	}
	return int32(min(max(q, float64(p.Lo)), float64(p.Hi)))
}

// Dequantize returns the value of the code q.
func (p Params) Dequantize(q int32) float32 { return float32(q-p.ZeroPoint) * p.Scale }

// FakeQuantize sets each y[i] to the value of the code of x[i]. y may be x.
func (p Params) FakeQuantize(y, x []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] = p.Dequantize(p.Quantize(v))
	}
}

// Covers returns the values of the least and the greatest code.
func (p Params) Covers() Range {
	return Range{float64(p.Dequantize(p.Lo)), float64(p.Dequantize(p.Hi))}
}
