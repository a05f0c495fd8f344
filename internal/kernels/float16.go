package kernels

import (
	"encoding/binary"
	"math"
)

// round rounds all of x to a type, ties to even.
func round(x []float32, t Type) {
	switch t {
	case Float16:
		for i, v := range x {
			x[i] = roundFloat16(v)
		}
	case BFloat16:
		for i, v := range x {
			b := math.Float32bits(v)
			x[i] = math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
		}
	}
}

// roundFloat16 rounds v, finite, to a float16. It does not keep the sign of 0.
func roundFloat16(v float32) float32 {
	if abs(v) < (127-14)<<23 { // below normal numbers, which are multiples of 2^-24
		return v + 0.75 - 0.75
	}
	r := half(v)
	if abs(r) >= (127+16)<<23 {
		return r * math.MaxFloat32
	}
	return r
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
