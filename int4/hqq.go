package int4

import "math"

// HalfQuadratic finds zero points as ONNX Runtime's HQQ (half-quadratic quantization) does. The scale
// follows from the range of a block. The zero point begins as a code and becomes a float. Each step
// rounds all codes and then sets the zero point to
//
//	z = mean(q - (w - e)·s⁻¹)
//
// where e is the part of an element's error that is treated as an outlier's, 0 for errors below 0.14.
// ONNX Runtime takes steps for all blocks of a weight until the sum of their errors stops falling: see
// AddErrors and HalfQuadraticSteps.
//
// A block of fewer than block elements is padded with zeros. A HalfQuadratic owns its buffers and is
// not for concurrent use.
type HalfQuadratic struct {
	codec    Codec
	rounded  bool // the zero point becomes a code
	steps    int
	w, codes []float32 // of the block, filled up
}

// MostHalfQuadraticSteps is the number of steps after which ONNX Runtime stops in any case.
const MostHalfQuadraticSteps = 20

// HalfQuadratic returns a HalfQuadratic for blocks of so many elements, which does the given
// number of steps. If zero points are rounded in the end, the range of a block includes 0.
func (c Codec) HalfQuadratic(block, steps int, rounded bool) *HalfQuadratic {
	return &HalfQuadratic{codec: c, rounded: rounded, steps: steps, w: make([]float32, block), codes: make([]float32, block)}
}

// AddErrors adds the magnitudes of the block's errors before each step to sums.
func (h *HalfQuadratic) AddErrors(sums *[MostHalfQuadraticSteps]float64, x []float32) {
	inverse, zero := h.begin(x)
	for i := range sums {
		lost := 0.0
		zero, lost = h.step(i, inverse, zero)
		sums[i] += lost
	}
}

// HalfQuadraticSteps is the number of steps for a weight of n elements, including the padding of
// blocks: up to the first step whose error is not the lowest so far.
func HalfQuadraticSteps(sums *[MostHalfQuadraticSteps]float64, n int64) int {
	least := float32(1e4)
	for i, sum := range sums {
		mean := float32(sum / float64(n))
		if !(mean < least) {
			return i + 1
		}
		least = mean
	}
	return len(sums)
}

// FitFloat sets q to the codes of x, a block of finite elements. The zero point counts from the
// least code: an element is (q - least - zero)·scale.
func (h *HalfQuadratic) FitFloat(q []byte, x []float32) (scale, zero float32) {
	inverse, zero := h.begin(x)
	for i := range h.steps {
		zero, _ = h.step(i, inverse, zero)
	}
	least, greatest := h.codec.limits()
	if h.rounded {
		zero = min(max(float32(math.RoundToEven(float64(zero))), 0), float32(greatest-least))
	}
	scale = h.codec.Type.Round(1 / inverse)
	if stored := h.codec.Type.Round(zero); isInf(inverse) || isInf(scale) || isInf(stored) || stored != stored { // the range overflows
		scale, z := h.codec.Nearest().Fit(q, x)
		return scale, float32(h.codec.zero([]byte{z}, 0) - least)
	}
	h.round(inverse, zero)
	for i := range q {
		q[i] = byte(int32(h.codes[i]) + least)
	}
	return scale, h.codec.Type.Round(zero)
}

// Fit is FitFloat for zero points that are rounded.
func (h *HalfQuadratic) Fit(q []byte, x []float32) (float32, byte) {
	scale, zero := h.FitFloat(q, x)
	least, _ := h.codec.limits()
	return scale, byte(int32(zero) + least)
}

// begin sets the block. It returns one over the scale, and the first zero point.
func (h *HalfQuadratic) begin(x []float32) (inverse, zero float32) {
	clear(h.w[copy(h.w, x):])
	lo, hi := h.w[0], h.w[0]
	for _, v := range h.w {
		lo, hi = min(lo, v), max(hi, v)
	}
	if h.rounded {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	inverse = 1
	if hi != lo {
		inverse = h.greatest() / (hi - lo)
	}
	if !h.rounded {
		inverse = min(inverse, 2e4)
	}
	return inverse, float32(math.RoundToEven(float64(-lo * inverse)))
}

// greatest is the greatest code, counted from the least.
func (h *HalfQuadratic) greatest() float32 { return float32(int32(1)<<h.codec.Bits - 1) }

// round sets the codes, counted from the least.
func (h *HalfQuadratic) round(inverse, zero float32) {
	most := h.greatest()
	for i, v := range h.w {
		h.codes[i] = min(max(float32(math.RoundToEven(float64(float32(v*inverse)+zero))), 0), most)
	}
}

// step returns the next zero point, and the sum of the magnitudes of errors with this one.
func (h *HalfQuadratic) step(i int, inverse, zero float32) (next float32, lost float64) {
	h.round(inverse, zero)
	beta := 10 * math.Pow(1.01, float64(i))
	var sum float32
	for j, v := range h.w {
		off := v - (h.codes[j]-zero)/inverse
		lost += math.Abs(float64(off))
		sum += h.codes[j] - float32((v-shrink(off, beta))*inverse)
	}
	return sum / float32(len(h.w)), lost
}

// shrink is the part of an error that is left to outliers.
func shrink(off float32, beta float64) float32 {
	a := abs(off)
	if a < 0.14 { // the power is greater for any beta
		return 0
	}
	a = max(a-float32(float32(1/beta)*float32(math.Pow(float64(a+1e-8), -0.3))), 0)
	return float32(math.Copysign(float64(a), float64(off)))
}
