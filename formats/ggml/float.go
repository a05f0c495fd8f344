package ggml

import (
	"encoding/binary"
	"math"

	"onnxquant/formats/dtype"

	"github.com/x448/float16"
)

// The float encodings: single elements, little-endian. F16 and BF16 round to nearest, ties to even;
// numbers beyond their range become infinite.
var (
	F32  = &Encoding{"F32", 0, 1, 4, encodeF32, dtype.Float32.Decode, nil}
	F16  = &Encoding{"F16", 1, 1, 2, encodeF16, dtype.Float16.Decode, nil}
	BF16 = &Encoding{"BF16", 30, 1, 2, encodeBF16, dtype.BFloat16.Decode, nil}
)

func encodeF32(dst []byte, row, _ []float32) { dtype.Float32.Encode(dst, row) }

func encodeF16(dst []byte, row, _ []float32) {
	for i, v := range row {
		putHalf(dst[2*i:], v)
	}
}

func encodeBF16(dst []byte, row, _ []float32) {
	for i, v := range row {
		b := math.Float32bits(v)
		if v != v {
			b |= 1 << 22 // a quiet NaN
		} else {
			b += 0x7fff + b>>16&1
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(b>>16))
	}
}

// putHalf stores v as a float16 and returns the rounded value.
func putHalf(dst []byte, v float32) float32 {
	h := float16.Fromfloat32(v)
	binary.LittleEndian.PutUint16(dst, h.Bits())
	return h.Float32()
}

// half loads a float16.
func half(src []byte) float32 {
	return float16.Frombits(binary.LittleEndian.Uint16(src)).Float32()
}
