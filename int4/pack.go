package int4

import "onnxquant/internal/kernels"

// PackedLen returns the number of bytes of n packed codes.
func PackedLen(n, bits int) int { return kernels.PackedLen(n, bits) }

// Pack packs the codes q into the first PackedLen(len(q), bits) bytes of dst.
// Pieces of a tensor can be packed one by one if len(q)*bits is a multiple of 8 for all but
// the last.
func Pack(dst, q []byte, bits int) {
	kernels.Pack(dst, q, bits)
}

// Unpack sets q to the first len(q) codes packed in src.
func Unpack(q, src []byte, bits int, signed bool) {
	kernels.Unpack(q, src, bits, signed)
}
