package actpairs

import (
	"math"

	"onnxquant/formats/dtype"
)

// Codes describes integers that represent floats: value = scale · (code - zero).
type Codes struct {
	Type      dtype.DType // Int8, Uint8, Int16, Uint16 or Float8E4M3FN; Int4 for weights
	Symmetric bool        // the zero point is the middle of the codes
	Reduced   bool        // codes use one bit less
	MinRange  float64     // least difference between the ends of the range; 0: no limit
}

// Params are the scale and zero point of a tensor, or of one of its channels.
type Params struct {
	Scale float32
	Zero  int32
}

// limits returns the smallest and the largest code to which a range is mapped.
func (c Codes) limits() (lo, hi float64) {
	if c.IsFP8() {
		return -mostFP8, mostFP8
	}
	size := math.Exp2(float64(c.Type.Bits()))
	signed := c.Type.Signed()
	switch {
	case c.Reduced && signed:
		return -size / 4, size / 4
	case c.Reduced:
		return 0, size/2 - 1
	case signed && c.Symmetric:
		return 1 - size/2, size/2 - 1
	case signed:
		return -size / 2, size/2 - 1
	}
	return 0, size - 1
}

// mostFP8 is the largest number of E4M3. A scale maps the largest magnitude to it.
const mostFP8 = 448

// leastFP8 is the smallest number of E4M3 above 0.
const leastFP8 = 0x1p-9

// IsFP8 reports whether codes are floats of 8 bits. They have no zero points.
func (c Codes) IsFP8() bool { return c.Type == dtype.Float8E4M3FN }

// Step is the least difference between values, for a scale.
func (c Codes) Step(scale float32) float64 {
	if c.IsFP8() {
		return leastFP8 * float64(scale)
	}
	return float64(scale)
}

// Whole returns the smallest and the largest code of the type.
func (c Codes) Whole() (lo, hi float64) { return Codes{Type: c.Type}.limits() }

// tiny is the smallest normal float32.
const tiny = 0x1p-126

// For returns the scale and zero point for the range lo to hi, extended to 0. It computes in
// float64. Instead of a subnormal scale it returns 1.
func (c Codes) For(lo, hi float32) Params {
	first, last := c.limits()
	lo, hi = min(lo, 0), max(hi, 0)
	if c.MinRange > 0 {
		hi = max(hi, lo+float32(c.MinRange))
	}
	if c.Symmetric {
		hi = max(-lo, hi)
		lo = -hi
	}
	scale := (float64(hi) - float64(lo)) / (last - first)
	switch {
	case scale < tiny:
		return Params{1, 0}
	case c.Symmetric:
		return Params{float32(scale), int32(math.RoundToEven((first + last) / 2))}
	}
	return Params{float32(scale), int32(math.RoundToEven(first - float64(lo)/scale))}
}

// code returns the code of x.
func (c Codes) code(x float32, p Params) int32 {
	first, last := c.Whole()
	q := math.RoundToEven(float64(x/p.Scale)) + float64(p.Zero)
	return int32(min(max(q, first), last))
}
