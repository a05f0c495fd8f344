package int4

import "onnxquant/internal/kernels"

// PackedLen returns the number of bytes of n packed codes.
func PackedLen(n, bits int) int { return (n*bits + 7) / 8 }

// Pack packs the codes q into the first PackedLen(len(q), bits) bytes of dst.
// Pieces of a tensor can be packed one by one if len(q)*bits is a multiple of 8 for all but
// the last.
func Pack(dst, q []byte, bits int) {
	switch bits {
	case 2:
		kernels.Pack2(dst, q)
	case 4:
		kernels.Pack4(dst, q)
	case 8:
		copy(dst[:len(q)], q)
	default:
		panic("int4: Pack: bits are not 2, 4 or 8")
	}
}

// Unpack sets q to the first len(q) codes packed in src.
func Unpack(q, src []byte, bits int, signed bool) {
	switch bits {
	case 2:
		kernels.Unpack2(q, src, signed)
	case 4:
		kernels.Unpack4(q, src, signed)
	case 8:
		copy(q, src[:len(q)])
	default:
		panic("int4: Unpack: bits are not 2, 4 or 8")
	}
}
