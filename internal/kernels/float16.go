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

// half rounds t to the 11 bits of a float16. Below the normal range of float16
// it keeps more bits, which no code depends on.
func half(t float32) float32 { return nearest(t, 24-11) }

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

// roundFloat16 rounds v to a float16 by adding a number so large that the last
// bit of the sum, if v is normal, is the eleventh of v, else 2^-24.
func roundFloat16(v float32) float32 {
	exponent := max(math.Float32bits(v)&(0xff<<23), (127-14)<<23)
	grid := math.Float32frombits(exponent + 13<<23 + 1<<22)
	return v + grid - grid
}

// FromFloat16 sets each of x to a little-endian float16 of src, of which there
// are as many. A NaN becomes a quiet one.
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
