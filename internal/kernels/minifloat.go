package kernels

import "math"

// MiniFloat is a floating-point format that fits in a byte. A code is, from the highest bit down, a
// sign, an exponent and a fraction, as in float32. Below the least normal number are subnormal
// numbers, evenly spaced down to 0. The meaning of codes above the largest number depends on the
// format.
type MiniFloat struct {
	Values [256]float32 // of the codes; codes of fewer bits repeat
	Top    uint32       // code of the largest number

	// The assembly reads the following in this order.
	least    uint32  // bits of the least normal number
	most     uint32  // bits of the largest number
	drop     uint32  // bits that the fraction of a float32 has more
	dropExp  uint32  // as many, added to an exponent
	signDown uint32  // distance of the sign bit from that of a float32
	zero     float32 // added to values; +0 makes -0 positive, -0 changes nothing
	signless uint32  // code that loses its sign, if any
}

// The formats. E2M1 is the format of four bits, without NaN. SignlessE2M1 decodes -0 as 0, but a
// negative number that rounds to 0 still gets the code of -0. The FNUZ formats have no -0.
var (
	E4M3FN       = newMiniFloat(4, 3, 7, 0x7e)
	E5M2         = newMiniFloat(5, 2, 15, 0x7b)
	E4M3FNUZ     = newMiniFloat(4, 3, 8, 0x7f)
	E5M2FNUZ     = newMiniFloat(5, 2, 16, 0x7f)
	E2M1         = newMiniFloat(2, 1, 1, 7)
	SignlessE2M1 = newMiniFloat(2, 1, 1, 7)
)

func init() {
	nan := float32(math.NaN())
	E4M3FN.Values[0x7f], E4M3FN.Values[0xff] = nan, nan
	for code := 0x7c; code <= 0x7f; code++ {
		v := nan
		if code == 0x7c {
			v = float32(math.Inf(1))
		}
		E5M2.Values[code], E5M2.Values[code|0x80] = v, -v
	}
	for _, f := range []*MiniFloat{E4M3FNUZ, E5M2FNUZ} {
		f.Values[0x80] = nan
		f.signless = 0
	}
	SignlessE2M1.zero = 0
}

// newMiniFloat returns a format with as many bits of exponent and fraction.
func newMiniFloat(exponent, fraction, bias, top uint32) *MiniFloat {
	sign := exponent + fraction
	f := &MiniFloat{
		Top:      top,
		least:    (128 - bias) << 23,
		drop:     23 - fraction,
		dropExp:  (23 - fraction) << 23,
		signDown: 31 - sign,
		zero:     float32(math.Copysign(0, -1)),
		signless: 1 << 31,
	}
	for code := range f.Values {
		e, m := code>>fraction&(1<<exponent-1), float64(code&(1<<fraction-1))
		if e == 0 {
			e = 1
		} else {
			m += float64(int(1) << fraction)
		}
		v := math.Ldexp(m, e-int(bias+fraction))
		if code>>sign&1 != 0 {
			v = -v
		}
		f.Values[code] = float32(v)
	}
	f.most = math.Float32bits(f.Values[top])
	return f
}

// Magnitude returns the code of |x|, rounded to the nearest number, ties to even, as if the exponents
// continued above the largest. It is above Top if x is more than half a step beyond the largest
// number, infinite or NaN.
func (f *MiniFloat) Magnitude(x float32) uint32 {
	return f.round(min(abs(x), f.most+1<<23))
}

// Code returns the code of x/scale, with the sign of x. Numbers beyond the largest, and NaN, get the
// code of the largest. The scale is not negative.
func (f *MiniFloat) Code(x, scale float32) byte {
	return f.signed(f.round(min(abs(x/scale), f.most)), x)
}

// signed gives a code the sign of x.
func (f *MiniFloat) signed(code uint32, x float32) byte {
	sign := math.Float32bits(x+f.zero) & signBit >> (f.signDown & 31)
	if code == f.signless {
		sign = 0
	}
	return byte(code | sign)
}

// round returns the code of a number with bits a, not much above the largest.
//
// It adds a power of two so large that the ulp of the sum is the distance of neighbours around a. The
// low bits of the sum then count these distances, from 0 if a is subnormal. Larger exponents continue
// the count.
func (f *MiniFloat) round(a uint32) uint32 {
	exponent := max(a&(0xff<<23), f.least)
	power := exponent + f.dropExp
	sum := math.Float32frombits(a) + math.Float32frombits(power)
	return math.Float32bits(sum) - power + (exponent-f.least)>>(f.drop&31)
}
