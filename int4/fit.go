package int4

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// Nearest returns the Fitter that does what Scales and QuantizeBlocks do.
func (c Codec) Nearest() blocks.Fitter { return nearest{c} }

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
// rounded before 1/s, as are scales of another type than the weights.
func (c Codec) SignedExtreme() blocks.ColumnFitter { return &signedExtreme{Codec: c} }

type signedExtreme struct {
	Codec
	columns []float32 // their ranges and what rule returns
}

func (e *signedExtreme) Fit(q []byte, x []float32) (float32, byte) {
	lo, hi := x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	scale, inverse, zero, ok := e.rule(lo, hi)
	if !ok {
		return e.Nearest().Fit(q, x)
	}
	least, greatest := e.limits()
	kernels.RoundUpBlock(q, x, inverse, zero, float32(greatest-least), byte(least))
	return scale, byte(int32(zero) + least)
}

func (e *signedExtreme) FitColumns(q []byte, x, scale []float32, zero []byte) {
	n := len(scale)
	e.columns = slices.Grow(e.columns[:0], 4*n)[:4*n]
	clear(e.columns)
	lo, hi, inverse, offset := e.columns[:n], e.columns[n:2*n], e.columns[2*n:3*n], e.columns[3*n:]
	kernels.RangeColumns(lo, hi, x)
	least, greatest := e.limits()
	var special []int
	for i := range n {
		ok := lo[i] != 0 || hi[i] != 0 // else the sign of the zeros counts
		if ok {
			scale[i], inverse[i], offset[i], ok = e.rule(lo[i], hi[i])
			zero[i] = byte(int32(offset[i]) + least)
		}
		if !ok {
			special = append(special, i)
		}
	}
	kernels.RoundUpColumns(q, x, inverse, offset, float32(greatest-least), byte(least))
	if len(special) == 0 {
		return
	}
	column, codes := make([]float32, len(x)/n), make([]byte, len(x)/n)
	for _, i := range special {
		for r := range column {
			column[r] = x[r*n+i]
		}
		scale[i], zero[i] = e.Fit(codes, column)
		for r, c := range codes {
			q[r*n+i] = c
		}
	}
}

// rule returns the scale of a block with the range lo … hi, extended to 0, the factor for its
// elements, and its zero point counted from the least code. ok is false if the rule does not cover the
// range.
func (e *signedExtreme) rule(lo, hi float32) (scale, inverse, zero float32, ok bool) {
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
	scale = e.RoundScale(span)
	if e.Type == dtype.Float16 || e.smallScale() {
		span = scale
	}
	inverse = 1 / span
	if scale != 0 && isInf(inverse) || isInf(scale) {
		return 0, 0, 0, false
	}
	if span == 0 {
		inverse = 0
	}
	return scale, inverse, zero, true
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func isInf(x float32) bool { return math.IsInf(float64(x), 0) }
