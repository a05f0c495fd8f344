package ggml

import (
	"math"
	"slices"

	"onnxquant/internal/kernels"
)

// Blocks of 32 codes that number the values of a table.
var (
	IQ4_NL = &Encoding{"IQ4_NL", 20, small, 2 + small/2, encodeIQ4_NL, decodeIQ4_NL}
	MXFP4  = &Encoding{"MXFP4", 39, small, 1 + small/2, encodeMXFP4, decodeMXFP4}
)

// nonlinear are the values of IQ4_NL's codes, ascending.
var nonlinear = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func encodeIQ4_NL(dst []byte, row, importance []float32) {
	var (
		q [small]byte
		w [small]float32
	)
	for x := range slices.Chunk(row, small) {
		if importance != nil {
			weigh(w[:], x, importance[:small], 2*sumSquares(x)/small)
			importance = importance[small:]
		} else {
			squares(w[:], x)
		}
		scale := searchNonlinear(x, w[:])
		putHalf(dst, scale)
		var inverse float32
		if scale != 0 {
			inverse = 1 / scale
		}
		for i, v := range x {
			q[i] = nearestNonlinear(v * inverse)
		}
		pairNibbles(dst[2:], &q)
		dst = dst[2+small/2:]
	}
}

func decodeIQ4_NL(row []float32, src []byte) {
	var q [small]byte
	for x := range slices.Chunk(row, small) {
		scale := half(src)
		splitNibbles(&q, src[2:])
		for i, c := range q {
			x[i] = scale * nonlinear[c]
		}
		src = src[2+small/2:]
	}
}

// searchNonlinear returns the scale of least weighted error: of sixteen scales by which
// an element of largest magnitude is near the least value, each is tried with the codes
// that it leads to, and fitted to them.
func searchNonlinear(x, w []float32) float32 {
	largest := extreme(x)
	if kernels.Abs(largest) < negligible {
		return 0
	}
	fit := fitNonlinear(x, w, 1/(-largest/nonlinear[0]))
	scale := fit.scale()
	best := scale * fit.xq
	for try := float32(-7); try <= 7; try++ {
		fit := fitNonlinear(x, w, (try+nonlinear[0])/largest)
		if fit.qq > 0 && fit.xq*fit.xq > best*fit.qq {
			scale = fit.scale()
			best = scale * fit.xq
		}
	}
	return scale
}

// fit holds weighted sums of elements times values of codes and of their squares.
type fit struct{ xq, qq float32 }

// scale returns the scale of least squares.
func (f fit) scale() float32 {
	if !(f.qq > 0) {
		return 0
	}
	return f.xq / f.qq
}

func fitNonlinear(x, w []float32, inverse float32) fit {
	var f fit
	for i, v := range x {
		q := nonlinear[nearestNonlinear(v*inverse)]
		wq := w[i] * q
		f.xq += float32(wq * v)
		f.qq += float32(wq * q)
	}
	return f
}

// nearestNonlinear returns the code of the nearest value, of two the greater one, and
// the last one for a NaN.
func nearestNonlinear(v float32) byte {
	above := 0 // the first code of a greater value
	for above < len(nonlinear) && !(v < nonlinear[above]) {
		above++
	}
	switch {
	case above == 0:
		return 0
	case above == len(nonlinear):
		return byte(above - 1)
	case v-nonlinear[above-1] < nonlinear[above]-v:
		return byte(above - 1)
	}
	return byte(above)
}

// doubled are twice the values of E2M1 codes.
var doubled = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func encodeMXFP4(dst []byte, row, _ []float32) {
	var q [small]byte
	for x := range slices.Chunk(row, small) {
		dst[0] = exponentMXFP4(kernels.AbsMax(0, x))
		scale := halfPower(dst[0])
		for i, v := range x {
			q[i] = nearestE2M1(v, scale)
		}
		pairNibbles(dst[1:], &q)
		dst = dst[1+small/2:]
	}
}

func decodeMXFP4(row []float32, src []byte) {
	var q [small]byte
	for x := range slices.Chunk(row, small) {
		scale := halfPower(src[0])
		splitNibbles(&q, src[1:])
		for i, c := range q {
			x[i] = doubled[c] * scale
		}
		src = src[1+small/2:]
	}
}

// exponentMXFP4 returns the E8M0 code of a block's scale. The logarithm is rounded to a
// float32, so that a little less than a power of two may count as that power.
func exponentMXFP4(amax float32) byte {
	if amax == 0 {
		return 0
	}
	exponent := math.Floor(float64(float32(math.Log2(float64(amax)))))
	return byte(max(0, int(exponent)-2+127))
}

// halfPower returns 2^(e-128), half of what E8M0 code e stands for.
func halfPower(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(1 << 21 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// nearestE2M1 returns the code of the value that times scale is nearest to v, of two
// the first one.
func nearestE2M1(v, scale float32) byte {
	code, least := byte(0), kernels.Abs(v)
	for c := 1; c < 16; c++ {
		if d := kernels.Abs(float32(doubled[c]*scale) - v); d < least {
			code, least = byte(c), d
		}
	}
	return code
}
