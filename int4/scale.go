package int4

import (
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

// zeroScale is the scale of a block of zeros in a symmetric format, and zeroRange its range in other
// formats. The values are arbitrary; these are ModelOpt's.
const (
	zeroScale = 1e-5
	zeroRange = 1e-5
)

// Scales turns the ranges lo … hi of blocks, from the observing methods, into scales and, if the
// format stores them, zero points. A symmetric format does not use lo; its scale has the sign of hi.
// It reports whether all ranges are finite. If not, the weight has an infinity or a NaN, and the
// result is undefined.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	finite = true
	u := c.usual()
	for i := 0; i < len(hi); i++ {
		if c.ZeroPoint {
			i += u.affine(scale[i:], zero[i:], lo[i:], hi[i:])
		} else {
			i += u.plain(scale[i:], hi[i:])
		}
		if i == len(hi) {
			break
		}
		var l float32
		h := hi[i]
		if c.ZeroPoint {
			l = lo[i]
		}
		if !kernels.IsFinite(l) || !kernels.IsFinite(h) {
			finite = false
			continue
		}
		s, z, ok := u.scale(l, h)
		if !ok {
			s, z = c.scale(l, h)
		}
		scale[i] = s
		if c.HasZeroPoints() {
			zero[i] = byte(z)
		}
	}
	return finite
}

// scale returns the scale and the zero point of a block of finite range.
func (c Codec) scale(lo, hi float32) (float32, int32) {
	switch {
	case !c.ZeroPoint && hi < 0:
		return -c.symmetric(-hi), c.middle()
	case !c.ZeroPoint:
		return c.symmetric(hi), c.middle()
	}
	least, greatest := c.limits()
	steps := greatest - least
	s := c.affine(lo, hi, float32(steps))
	z := int32(math.RoundToEven(float64(c.step(-lo / s))))
	z = min(max(z, 0), steps)
	return c.bound(s, max(z, steps-z)), z + least
}

func (c Codec) symmetric(amax float32) float32 {
	if amax == 0 {
		return c.RoundScale(zeroScale)
	}
	steps := int32(1)<<(c.Bits-1) - 1
	s := c.bound(c.divide(amax, float32(steps)), steps)
	if amax/s >= float32(steps)+0.5 { // so much lower that -amax gets the smallest code
		s = c.bound(s, steps+1)
	}
	return s
}

func (c Codec) affine(lo, hi, steps float32) float32 {
	span := c.step(hi - lo)
	switch {
	case span == 0:
		return c.RoundScale(c.step(zeroRange) / steps)
	case !kernels.IsFinite(span):
		return c.RoundScale(c.step(hi/steps) - c.step(lo/steps))
	}
	return c.divide(span, steps)
}

// divide returns the scale with which steps codes span a range.
func (c Codec) divide(span, steps float32) float32 {
	s := c.RoundScale(span / steps)
	if c.Type != dtype.Float16 {
		return max(s, 0x1p-126)
	}
	if s < zeroScale && s*steps < span { // subnormal: round up
		s += 0x1p-24
	}
	return s
}

// bound lowers s until codes times s is finite in Type.
func (c Codec) bound(s float32, codes int32) float32 {
	n := float32(codes)
	fits := func(s float32) bool { return kernels.IsFinite(c.Type.Round(n * s)) }
	if fits(s) {
		return s
	}
	if c.Stepped() && c.Step > 0 {
		for n := c.steps(s); n > 1 && !fits(s); n-- {
			s = float32(n-1) * c.Step
		}
		return s
	}
	greatest, ulp := float32(math.MaxFloat32), uint32(1)
	switch c.Type {
	case dtype.Float16:
		greatest, ulp = 65504, 1<<13
	case dtype.BFloat16:
		greatest, ulp = 0x1.fep127, 1<<16
	}
	s = c.Type.Round(greatest / n)
	if !fits(s) {
		s = math.Float32frombits(math.Float32bits(s) - ulp)
	}
	return s
}
