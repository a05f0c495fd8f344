package fp8

import (
	"math"

	"onnxquant/formats/dtype"
)

// scaleFor returns the scale of type t that maps top to amax, the finite largest magnitude of a block.
// The package comment lists the exceptions.
func scaleFor(t dtype.DType, amax, top float32) float32 {
	if amax == 0 {
		return 1
	}
	s := amax / top
	ulp := uint32(1)
	switch t {
	case dtype.Float16:
		ulp = 1 << 13
		if s < 0x1p-14 {
			s = float32(math.Ceil(float64(amax)/float64(top)*0x1p24) * 0x1p-24)
		}
		s = dtype.RoundFloat16(s)
	case dtype.BFloat16:
		ulp = 1 << 16
		s = max(dtype.RoundBFloat16(s), 0x1p-126)
	default:
		s = max(s, 0x1p-126)
	}
	if y := top * s; y >= 0x1p15 && math.IsInf(float64(t.Round(y)), 0) { // less is finite in every type
		s = math.Float32frombits(math.Float32bits(s) - ulp)
	}
	return s
}
