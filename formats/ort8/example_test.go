package ort8_test

import (
	"fmt"

	"onnxquant/formats/ort8"
)

// A row with one scale, as quantize_dynamic makes it: unsigned, with a zero point.
func ExampleCodec() {
	row := []float32{-0.5, 0, 1, 2}
	codec := ort8.Codec{}
	lo, hi, scale, zero := make([]float32, 1), make([]float32, 1), make([]float32, 1), make([]byte, 1)
	codec.ObserveBlocks(lo, hi, row, len(row), len(row))
	codec.Scales(scale, zero, lo, hi)
	codes := make([]byte, len(row))
	codec.QuantizeBlocks(codes, row, scale, zero, len(row), len(row))
	fmt.Printf("scale %.4f, zero point %d, codes %d\n", scale[0], zero[0], codes)
	// Output:
	// scale 0.0098, zero point 51, codes [0 51 153 255]
}
