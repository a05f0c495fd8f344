package ort8_test

import (
	"math"
	"testing"

	"onnxquant/formats/ort8"
)

// What ONNX Runtime 1.31's compute_scale_zp returns for some ranges.
func TestScales(t *testing.T) {
	cases := []struct {
		codec  ort8.Codec
		lo, hi float32
		scale  float32
		zero   byte
	}{
		{ort8.Codec{Signed: true}, 0, 127, 1, 0},
		{ort8.Codec{Signed: true, Reduced: true}, 0, 64, 1, 0},
		{ort8.Codec{}, -128, 127, 1, 128},
		{ort8.Codec{}, 0, 255, 1, 0},
		{ort8.Codec{Reduced: true}, -127, 0, 1, 127},
		{ort8.Codec{}, -0.5, 254.5, 1, 0}, // a half is rounded to even
		{ort8.Codec{}, -1.5, 253.5, 1, 2},
		{ort8.Codec{}, 0, 0, 1, 0},
		{ort8.Codec{Signed: true}, 0, 1e-39, 1, 0}, // the scale would be subnormal
		{ort8.Codec{}, -math.MaxFloat32, math.MaxFloat32, float32(2 * math.MaxFloat32 / 255), 128},
	}
	for _, c := range cases {
		scale, zero := make([]float32, 1), []byte{99}
		if !c.codec.Scales(scale, zero, []float32{c.lo}, []float32{c.hi}) || scale[0] != c.scale || zero[0] != c.zero {
			t.Errorf("%+v %v … %v: scale %v, zero point %d; want %v, %d", c.codec, c.lo, c.hi, scale[0], zero[0], c.scale, c.zero)
		}
	}
	inf := float32(math.Inf(1))
	if (ort8.Codec{}).Scales(make([]float32, 1), make([]byte, 1), []float32{0}, []float32{inf}) {
		t.Error("infinity is finite")
	}
}
