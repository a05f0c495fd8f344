package mx

import (
	"math"

	"onnxquant/internal/kernels"
)

// BlockSize is the number of elements that share a scale by the specification.
const BlockSize = 32

// EncodeE2M1 returns the code of the number nearest to x, ties to even, at most 6. The sign of 0 is
// kept. NaN, which the type lacks, becomes 0 of the opposite sign, as in ml_dtypes and ONNX's
// reference.
func EncodeE2M1(x float32) byte {
	if x != x {
		return byte(^math.Float32bits(x) >> 31 << 3)
	}
	return kernels.E2M1.Code(x, 1)
}

// DecodeE2M1 returns the number that the code in the low half of a byte represents.
func DecodeE2M1(code byte) float32 { return kernels.E2M1.Values[code&15] }
