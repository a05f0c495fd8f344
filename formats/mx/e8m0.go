package mx

import "math"

// NaN is the E8M0 code of NaN.
const NaN = 255

// Rounding is a way to round to E8M0, as ONNX's Cast names them in round_mode.
type Rounding uint8

const (
	Up      Rounding = iota // to the next power of two, away from 0
	Down                    // to the last power of two, towards 0
	Nearest                 // to the power of two that is nearest in value; ties go up
)

// EncodeE8M0 returns the code of a power of two near x, as ONNX's Cast does from opset 24. The sign is
// dropped; 0 becomes code 0 and NaN code 255. A number that rounds beyond 2^127 becomes code 254 if
// saturate is set, else NaN; infinity always becomes NaN.
//
// Below 2^-126 it follows the standard's reference, which is coarse: Up gives code 1 to all but 0,
// Down gives code 0, and Nearest gives code 1 above 2^-127.
func EncodeE8M0(x float32, rounding Rounding, saturate bool) byte {
	b := math.Float32bits(x)
	exponent, fraction := b>>23&0xff, b&(1<<23-1)
	if exponent == NaN {
		return NaN
	}
	switch {
	case rounding == Up && fraction > 0,
		rounding == Nearest && fraction >= 1<<22 && (exponent > 0 || fraction > 1<<22):
		exponent++
	}
	if saturate {
		exponent = min(exponent, NaN-1)
	}
	return byte(exponent)
}

// DecodeE8M0 returns the power of two that a code represents, or NaN.
func DecodeE8M0(code byte) float32 {
	switch code {
	case 0:
		return 0x1p-127
	case NaN:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(code) << 23)
}

// ScaleByte returns the code of a scale of Codec, a power of two from 2^-127 to 2^127. NaN gives the
// code of NaN.
func ScaleByte(scale float32) byte { return byte(math.Float32bits(scale) >> 23) }
