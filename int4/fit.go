package int4

import (
	"math"

	"onnxquant/formats/dtype"
)

// Fitter finds the scale, the zero point and the codes of a block that is in memory as a whole.
// A Fitter has buffers of its own: it is not for concurrent use.
type Fitter interface {
	// Fit sets q to the codes of x, a block of finite elements. The zero point is that of a
	// format that stores them. Other formats ignore it.
	Fit(q []byte, x []float32) (scale float32, zero byte)
}

// Nearest returns the Fitter that does what Scales and QuantizeBlocks do.
func (c Codec) Nearest() Fitter { return nearest{c} }

type nearest struct{ Codec }

func (n nearest) Fit(q []byte, x []float32) (float32, byte) {
	var lo, hi, scale [1]float32
	var zero [1]byte
	n.ObserveBlocks(lo[:], hi[:], x, len(x), len(x))
	n.Scales(scale[:], zero[:], lo[:], hi[:])
	n.QuantizeBlocks(q, x, scale[:], zero[:], len(x), len(x))
	return scale[0], zero[0]
}

// SignedExtreme returns the Fitter with the rule of ONNX Runtime's MatMulNBitsQuantizer. In a
// symmetric format the element of the largest magnitude, with its sign, gets the code
// -2^(b-1), so that scales may be negative:
//
//	s = extreme / -2^(b-1)
//	q = clamp(round(w·(1/s)), -2^(b-1), 2^(b-1)-1)
//
// With a zero point the range is that of the package comment. Codes, counted from the least one,
// are rounded with ties up. The steps are in float32, whatever the type, and a float16 scale is
// rounded before 1/s.
func (c Codec) SignedExtreme() Fitter { return signedExtreme{c} }

type signedExtreme struct{ Codec }

func (e signedExtreme) Fit(q []byte, x []float32) (float32, byte) {
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	least, greatest := e.limits()
	steps := float32(greatest - least)
	half := float32(-least + e.middle()) // code, counted from the least, that stands for 0
	zero, span := half, float32(0)
	if e.ZeroPoint {
		lo, hi = min(lo, 0), max(hi, 0)
		span = (hi - lo) / steps
		zero = 0
		if span != 0 {
			zero = min(max(float32(math.Round(float64(-lo/span))), 0), steps)
		}
	} else {
		extreme := lo
		if abs(hi) > abs(lo) {
			extreme = hi
		}
		span = extreme / -half
	}
	scale := e.Type.Round(span)
	if e.Type == dtype.Float16 {
		span = scale
	}
	inverse := 1 / span
	if scale != 0 && isInf(inverse) || isInf(scale) { // the rule has no answer
		return e.Nearest().Fit(q, x)
	}
	if span == 0 {
		inverse = 0
	}
	for i, v := range x {
		u := float32(v*inverse) + zero
		q[i] = byte(int32(min(max(math.Round(float64(u)), 0), float64(steps))) + least)
	}
	return scale, byte(int32(zero) + least)
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func isInf(x float32) bool { return math.IsInf(float64(x), 0) }
