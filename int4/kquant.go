package int4

import (
	"math"

	"onnxquant/internal/blocks"
)

// KQuant returns the Fitter with ONNX Runtime's rule k_quant. Of 21 scales it takes the one with the
// least squared error, weighted by √mean(w²) + |w|; scale and minimum are fitted together. The zero
// point is then rounded to a code, and all elements to the nearest code. A block of fewer than block
// elements is padded with zeros. The format has zero points.
//
// The flaws of the rule are kept. A block whose elements are all positive, or all negative, has a zero
// point out of range and loses values. A block of equal elements below 0.5 becomes 0.
func (c Codec) KQuant(block int) blocks.Fitter { return &kQuant{Codec: c, block: block} }

type kQuant struct {
	Codec
	block int

	x, weights, terms []float32 // of the block, filled up
	tried             []float32 // codes
}

// kQuantTries is the number of scales that are tried, in addition to that of the whole range.
const kQuantTries = 20

// Fit computes in float32 and sums in the order of numpy, like the original: some codes depend on the
// last bit.
func (k *kQuant) Fit(q []byte, x []float32) (float32, byte) {
	k.fill(x)
	least, greatest := k.limits()
	steps := float32(greatest - least)
	n := len(k.x)

	lo, hi := k.x[0], k.x[0]
	for i, v := range k.x {
		lo, hi = min(lo, v), max(hi, v)
		k.terms[i] = v * v
	}
	mean := float32(math.Sqrt(float64(pairwise(k.terms) / float32(n))))
	for i, v := range k.x {
		k.weights[i] = mean + abs(v)
		k.terms[i] = k.weights[i] * v
	}
	sumW, sumX := pairwise(k.weights), pairwise(k.terms)

	inverse := float32(1)
	if lo != hi {
		inverse = steps / (hi - lo)
	}
	scale := 1 / inverse
	k.round(inverse, lo, steps)
	smallest := k.error(scale, lo)
	for try := range kQuantTries {
		inverse = 1
		if lo != hi {
			inverse = float32(float64(-1+float64(0.1*float64(try)))+float64(steps)) / (hi - lo)
		}
		k.round(inverse, lo, steps)
		sumL, sumL2, sumXL := k.moments()
		d := float32(sumW*sumL2) - float32(sumL*sumL)
		s := (float32(sumW*sumXL) - float32(sumX*sumL)) / d
		m := (float32(sumL2*sumX) - float32(sumL*sumXL)) / d
		if e := k.error(s, m); e < smallest {
			smallest, scale, lo = e, s, m
		}
	}

	stored := k.RoundScale(scale)
	if isInf(stored) || stored != stored { // the range overflows
		return k.Nearest().Fit(q, x)
	}
	if k.smallScale() {
		scale = stored
	}
	zero := min(max(math.RoundToEven(float64(-lo/scale)), 0), float64(steps))
	for i, v := range x {
		u := math.RoundToEven(float64(v)/float64(scale) + zero)
		q[i] = byte(int32(min(max(u, 0), float64(steps))) + least)
	}
	return stored, byte(int32(zero) + least)
}

// fill sets the block.
func (k *kQuant) fill(x []float32) {
	n := max(k.block, len(x))
	if len(k.x) != n {
		k.x, k.weights, k.terms, k.tried = make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	}
	clear(k.x[copy(k.x, x):])
}

// round sets the tried codes.
func (k *kQuant) round(inverse, lo, steps float32) {
	for i, v := range k.x {
		k.tried[i] = min(max(float32(math.RoundToEven(float64(inverse*(v-lo)))), 0), steps)
	}
}

// error is the weighted squared error of the tried codes.
func (k *kQuant) error(scale, lo float32) float32 {
	for i, v := range k.x {
		d := float32(scale*k.tried[i]) + lo - v
		k.terms[i] = k.weights[i] * float32(d*d)
	}
	return pairwise(k.terms)
}

// moments returns the weighted sums of the tried codes, their squares, and their products with
// the elements.
func (k *kQuant) moments() (l, l2, xl float32) {
	for i, c := range k.tried {
		k.terms[i] = k.weights[i] * c
	}
	l = pairwise(k.terms)
	for i, c := range k.tried {
		k.terms[i] = k.weights[i] * c * c
	}
	l2 = pairwise(k.terms)
	for i, c := range k.tried {
		k.terms[i] = k.weights[i] * c * k.x[i]
	}
	return l, l2, pairwise(k.terms)
}

// pairwise sums in the order of numpy: eight sums side by side for up to 128 elements; longer runs are
// halved.
func pairwise(x []float32) float32 {
	switch n := len(x); {
	case n < 8:
		var sum float32
		for _, v := range x {
			sum += v
		}
		return sum
	case n <= 128:
		r := [8]float32(x)
		i := 8
		for ; i < n-n%8; i += 8 {
			for j := range r {
				r[j] += x[i+j]
			}
		}
		sum := ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
		for _, v := range x[i:] {
			sum += v
		}
		return sum
	default:
		half := n / 2
		half -= half % 8
		return pairwise(x[:half]) + pairwise(x[half:])
	}
}
