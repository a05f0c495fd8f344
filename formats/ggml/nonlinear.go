package ggml

import (
	"math"
	"slices"

	"onnxquant/internal/kernels"
)

// Blocks of 32 codes that are positions in a table of values.
var (
	IQ4_NL = &Encoding{"IQ4_NL", 20, small, 2 + small/2, encodeIQ4_NL, decodeIQ4_NL, &Form{
		Bits: 4, Values: nonlinear[:], Part: small, Split: splitIQ4_NL, Join: joinIQ4_NL,
	}}
	MXFP4 = &Encoding{"MXFP4", 39, small, 1 + small/2, encodeMXFP4, decodeMXFP4, nil}
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
			for i, v := range x {
				w[i] = v * v
			}
		}
		scale := searchNonlinear(x, w[:])
		if scale != scale {
			scale = math.Float32frombits(0xffc00000) // amd64's NaN; arm64 makes one with another sign
		}
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

// searchNonlinear returns the scale of the least weighted error. It tries sixteen scales that map an
// element of the largest magnitude near the least value, and fits each to its codes.
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
	last := len(nonlinear) - 1
	switch {
	case v <= nonlinear[0]:
		return 0
	case !(v < nonlinear[last]):
		return byte(last)
	}
	code := below[int(float32(v)-nonlinear[0])]
	if v >= (nonlinear[code]+nonlinear[code+1])/2 {
		code++
	}
	return code & 15
}

// below are the codes that v may have by the whole part of v+127, or else the next code.
var below = func() (codes [241]byte) {
	code := 0
	for i := range codes {
		for code+2 < len(nonlinear) && float32(i)+nonlinear[0] >= (nonlinear[code]+nonlinear[code+1])/2 {
			code++
		}
		codes[i] = byte(code)
	}
	return codes
}()

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

// exponentMXFP4 returns the E8M0 code of a block's scale. The logarithm is rounded to float32, so a
// number slightly below a power of two may count as that power.
func exponentMXFP4(amax float32) byte {
	if amax == 0 {
		return 0
	}
	exponent := math.Floor(float64(float32(math.Log2(float64(amax)))))
	return byte(max(0, int(exponent)-2+127))
}

// halfPower returns 2^(e-128), half of what E8M0 code e represents.
func halfPower(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(1 << 21 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// nearestE2M1 returns the code of the value nearest to v/scale; of two, the first. scale is a power of
// two, and |v| is less than 16 times scale.
func nearestE2M1(v, scale float32) byte {
	halves := 2 * (kernels.Abs(v) / scale) // the double of v may be infinite
	up := int(halves)
	if float32(up) < halves {
		up++
	}
	code := byHalves[up]
	if v < 0 && code > 0 {
		code |= 8
	}
	return code
}

// byHalves are the codes by the number of half units, rounded up: the code is 1 from beyond 1/2 on, 2
// beyond 3/2, then beyond 5/2, 7/2, 5, 7, 10.
var byHalves = [33]byte{
	0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
}
