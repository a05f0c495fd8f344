// Package ort8 quantizes to integers of 8 bits with the scales of ONNX Runtime's
// quantize_dynamic.
//
//	codec := ort8.Codec{Signed: true}
//	codec.Scales(scale, zero, lo, hi)
//
// Signed codes are symmetric: scale = amax/127. Unsigned ones have a zero point, and the range
// includes 0: scale = (max - min)/255. Reduced codes leave out a bit, so that products of two
// codes add up without overflow on processors without VNNI: amax/64, or (max - min)/127. The
// scale is computed in float64. Where it would be subnormal, it is 1.
//
// Unsigned codes around a middle are those of signed ones plus [Codec.Zero], for operators that take
// one zero point for all channels.
//
// A [Codec] is immutable, and for concurrent use.
package ort8

import (
	"math"

	"onnxquant/formats/errstat"
	"onnxquant/int4"
	"onnxquant/internal/kernels"
)

// Codec is one of the formats.
type Codec struct {
	Signed  bool
	Reduced bool
	Middle  bool // unsigned codes are symmetric around Zero
}

// codes is the format without the rule for its scales.
func (c Codec) codes() int4.Codec {
	return int4.Codec{Bits: 8, Signed: c.Signed, ZeroPoint: !c.Signed && !c.Middle}
}

// Zero is the zero point of symmetric codes.
func (c Codec) Zero() byte {
	if c.Signed {
		return 0
	}
	return 128
}

func (c Codec) symmetric() bool { return c.Signed || c.Middle }

// Validate returns nil: every Codec is valid.
func (c Codec) Validate() error { return nil }

// HasZeroPoints reports whether blocks have zero points. Those of signed codes are 0, but stored.
func (c Codec) HasZeroPoints() bool { return !c.Middle }

// tiny is the smallest normal float32.
const tiny = 0x1p-126

// Scales turns the ranges lo … hi of blocks into their scales and zero points. Symmetric codes use
// hi alone, the amax. It reports whether all ranges are finite.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	finite = true
	for i, h := range hi {
		l := float32(0)
		if !c.symmetric() {
			l = lo[i]
		}
		if !kernels.IsFinite(l) || !kernels.IsFinite(h) {
			finite = false
			continue
		}
		scale[i], zero[i] = c.scale(float64(l), float64(h))
	}
	return finite
}

func (c Codec) scale(lo, hi float64) (float32, byte) {
	steps := 255.0
	switch {
	case c.symmetric() && c.Reduced:
		lo, steps = -hi, 128
	case c.symmetric():
		lo, steps = -hi, 254
	case c.Reduced:
		steps = 127
	}
	s := (hi - lo) / steps
	switch {
	case s < tiny && c.symmetric():
		return 1, c.Zero()
	case s < tiny:
		return 1, 0
	case c.symmetric():
		return float32(s), c.Zero()
	}
	return float32(s), byte(math.RoundToEven(-lo / s))
}

// ObserveColumns is like the method of int4.Codec.
func (c Codec) ObserveColumns(lo, hi, x []float32) { c.codes().ObserveColumns(lo, hi, x) }

// ObserveBlocks is like the method of int4.Codec.
func (c Codec) ObserveBlocks(lo, hi, x []float32, k, block int) {
	c.codes().ObserveBlocks(lo, hi, x, k, block)
}

// QuantizeColumns is like the method of int4.Codec.
func (c Codec) QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats {
	return c.codes().QuantizeColumns(q, x, scale, zero)
}

// QuantizeBlocks is like the method of int4.Codec.
func (c Codec) QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats {
	return c.codes().QuantizeBlocks(q, x, scale, zero, k, block)
}

// DecodeColumns is like the method of int4.Codec.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	c.codes().DecodeColumns(x, q, scale, zero)
}

// DecodeBlocks is like the method of int4.Codec.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	c.codes().DecodeBlocks(x, q, scale, zero, k, block)
}
