package kernels

import (
	"encoding/binary"
	"math"
)

// nearest rounds off the last bits of v, ties to even.
func nearest(v float32, bits int) float32 {
	b := math.Float32bits(v)
	return math.Float32frombits((b + 1<<(bits-1) - 1 + b>>bits&1) &^ (1<<bits - 1))
}

// halfQuotient rounds the quotient of two float16 to 11 bits, the precision of float16. Below the
// normal range of float16 that is too precise, but no code depends on it.
//
// Ties need no care. A tie t has 12 bits, so t times a divisor of 11 bits has 12 to 23 bits. The
// dividend has fewer than 12 bits, so it differs from that product by at least 2^-23 of it. So no
// quotient equals t or rounds to t as a float32.
func halfQuotient(t float32) float32 {
	return math.Float32frombits((math.Float32bits(t) + 1<<12 - 1) &^ (1<<13 - 1))
}

// halfProduct rounds the product of a code and a float16 to a float16, ties to even. A product has at
// most 19 bits. Subnormal products are multiples of 2^-24 and need no rounding.
//
// The sum has 24 bits. Subtracting its larger part leaves the first 11 bits of v.
func halfProduct(v float32) float32 {
	sum := float32(v * (1<<13 + 1))
	return sum - float32(v*(1<<13))
}

// round rounds all of x, to nearest, ties to even, to a type in whose range they
// are.
func round(x []float32, t Type) {
	switch t {
	case Float16:
		for i, v := range x {
			x[i] = roundFloat16(v)
		}
	case BFloat16:
		for i, v := range x {
			x[i] = nearest(v, 24-8)
		}
	}
}

// roundFloat16 rounds v to a float16 by adding a large number. The last bit of the sum is the eleventh
// bit of v if v is normal, else 2^-24.
func roundFloat16(v float32) float32 {
	exponent := max(math.Float32bits(v)&(0xff<<23), (127-14)<<23)
	grid := math.Float32frombits(exponent + 13<<23 + 1<<22)
	return v + grid - grid
}

// FromFloat16 decodes src, one little-endian float16 for each of x. A NaN becomes quiet.
func FromFloat16(x []float32, src []byte) { fromFloat16(x, src[:2*len(x)]) }

func fromFloat16Go(x []float32, src []byte) {
	for i := range x {
		h := uint32(binary.LittleEndian.Uint16(src[2*i:]))
		sign, magnitude := h<<16&signBit, h&0x7fff
		b := magnitude<<13 + (127-15)<<23
		switch {
		case magnitude > 0x7c00:
			b = 0x7fc00000 | magnitude<<13
		case magnitude == 0x7c00:
			b = 0x7f800000
		case magnitude < 0x0400: // subnormal
			b = math.Float32bits(float32(magnitude) * 0x1p-24)
		}
		x[i] = math.Float32frombits(sign | b)
	}
}

// FromBFloat16 sets each of x to a little-endian bfloat16 of src, of which there
// are as many.
func FromBFloat16(x []float32, src []byte) { fromBFloat16(x, src[:2*len(x)]) }

func fromBFloat16Go(x []float32, src []byte) {
	for i := range x {
		x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// ToFloat16 sets dst to the little-endian float16 nearest to each of x, ties to even; from
// 65520 on it is infinite. A NaN keeps its sign and the highest bits of its payload, or has
// the payload 1 if they are 0. It returns how many finite elements became infinite, and how
// many nonzero ones became 0.
func ToFloat16(dst []byte, x []float32) (beyond, vanished int) {
	if len(x) == 0 {
		return 0, 0
	}
	return toFloat16(dst[:2*len(x)], x)
}

const infinite = 0xff << 23 // the bits of infinity

func toFloat16Go(dst []byte, x []float32) (beyond, vanished int) {
	for i, v := range x {
		b := math.Float32bits(v)
		sign, a := uint16(b>>16&0x8000), b&^signBit
		var h uint16
		switch {
		case a > infinite:
			h = 0x7c00 | max(uint16(a>>13&0x3ff), 1)
		case a >= 0x477ff000: // 65520
			h = 0x7c00
			if a < infinite {
				beyond++
			}
		case a < (127-14)<<23: // subnormal: adding 1/2 rounds to 2^-24
			if h = uint16(math.Float32bits(math.Float32frombits(a)+0.5) - math.Float32bits(0.5)); h == 0 && a != 0 {
				vanished++
			}
		default:
			h = uint16((a + 0xfff + a>>13&1 - (127-15)<<23) >> 13)
		}
		binary.LittleEndian.PutUint16(dst[2*i:], sign|h)
	}
	return beyond, vanished
}

// ToBFloat16 sets dst to the little-endian bfloat16 nearest to each of x, ties to even. From 2^128 -
// 2^119 on it is infinite. A NaN becomes the quiet NaN without payload, with its sign. It returns the
// same counts as ToFloat16.
func ToBFloat16(dst []byte, x []float32) (beyond, vanished int) {
	if len(x) == 0 {
		return 0, 0
	}
	return toBFloat16(dst[:2*len(x)], x)
}

func toBFloat16Go(dst []byte, x []float32) (beyond, vanished int) {
	for i, v := range x {
		b := math.Float32bits(v)
		a := b &^ signBit
		h := uint16((b + 0x7fff + b>>16&1) >> 16)
		switch {
		case a > infinite:
			h = uint16(b>>16&0x8000 | 0x7fc0)
		case a < infinite && h&0x7fff == 0x7f80:
			beyond++
		case a != 0 && h&0x7fff == 0:
			vanished++
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return beyond, vanished
}
