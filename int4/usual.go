package int4

import (
	"math"

	"onnxquant/formats/dtype"
)

// usual computes the results of Codec.scale faster for most blocks: those whose scale is normal and
// whose range is small enough that no exception of the package comment applies.
type usual struct {
	zeroPoint, unsigned   bool
	least, middle, steps  int32
	leastScale, mostRange float32
	scaleTo, stepTo       rounding
}

func (c Codec) usual() usual {
	least, greatest := c.limits()
	u := usual{
		zeroPoint: c.ZeroPoint, unsigned: c.HasZeroPoints(), least: least, middle: c.middle(), steps: greatest - least,
		leastScale: 0x1p-126, mostRange: 0x1p126,
		scaleTo: toBits(24), stepTo: toBits(24),
	}
	if !c.ZeroPoint {
		u.steps /= 2
	}
	switch c.Type {
	case dtype.Float16:
		u.leastScale, u.mostRange = 0x1p-14, 0x1p15
		u.scaleTo, u.stepTo = toBits(11), toBits(11)
	case dtype.BFloat16:
		u.scaleTo = toBits(8)
	}
	switch c.Scale {
	case dtype.Float16:
		u.leastScale, u.mostRange = 0x1p-14, 0x1p15
		u.scaleTo = toBits(11)
	case dtype.Int8, dtype.Uint8:
		u.mostRange = -1 // none is usual
	}
	return u
}

// scale returns the scale and the zero point of a block. It is not ok if an exception may
// apply.
func (u *usual) scale(lo, hi float32) (scale float32, zero int32, ok bool) {
	span := u.stepTo.round(hi - lo)
	s := u.scaleTo.round(span / float32(u.steps))
	if s < u.leastScale || !(span <= u.mostRange) {
		return 0, 0, false
	}
	if !u.zeroPoint {
		return s, u.middle, true
	}
	return s, min(wholeNumber(u.stepTo.round(-lo/s)), u.steps) + u.least, true
}

// plain sets the scales of the first blocks up to an unusual one, for formats without zero points. It
// returns their number.
func (u *usual) plain(scale, hi []float32) int {
	if u.zeroPoint || u.unsigned {
		return 0
	}
	steps, least, most := float32(u.steps), u.leastScale, u.mostRange
	scale = scale[:len(hi)]
	if stepTo, scaleTo := u.stepTo, u.scaleTo; scaleTo.keep != math.MaxUint32 {
		for i, h := range hi {
			span := stepTo.round(h)
			s := scaleTo.round(span / steps)
			if !(s >= least && span <= most) {
				return i
			}
			scale[i] = s
		}
		return len(hi)
	}
	for i, h := range hi {
		s := h / steps
		if !(s >= least && h <= most) {
			return i
		}
		scale[i] = s
	}
	return len(hi)
}

// affine sets the scales and zero points of the first blocks up to an unusual one, if arithmetic and
// scales are float32. It returns their number.
func (u *usual) affine(scale []float32, zero []byte, lo, hi []float32) int {
	if !u.zeroPoint || u.stepTo.keep != math.MaxUint32 || u.scaleTo.keep != math.MaxUint32 {
		return 0
	}
	steps, count, least, leastScale, most := float32(u.steps), u.steps, u.least, u.leastScale, u.mostRange
	scale, zero, lo = scale[:len(hi)], zero[:len(hi)], lo[:len(hi)]
	for i, h := range hi {
		span := h - lo[i]
		s := span / steps
		if !(s >= leastScale && span <= most) {
			return i
		}
		scale[i], zero[i] = s, byte(min(wholeNumber(-lo[i]/s), count)+least)
	}
	return len(hi)
}

// wholeNumber rounds a small number that is not negative to an integer, ties to even.
func wholeNumber(x float32) int32 {
	const magic = 3 << 22
	return int32(x + magic - magic)
}

// rounding rounds normal numbers to fewer bits, to nearest, ties to even.
type rounding struct{ shift, odd, below, keep uint32 }

// toBits rounds to n of the 24 significant bits of a float32.
func toBits(n uint32) rounding {
	if n == 24 {
		return rounding{keep: math.MaxUint32}
	}
	shift := 24 - n
	return rounding{shift, 1, 1<<(shift-1) - 1, math.MaxUint32 << shift}
}

func (r rounding) round(x float32) float32 {
	b := math.Float32bits(x)
	return math.Float32frombits((b + r.below + b>>(r.shift&31)&r.odd) & r.keep)
}
