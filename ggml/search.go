package ggml

import (
	"math"

	"onnxquant/internal/kernels"
)

// negligible is a magnitude below which blocks are taken for zeros.
const negligible = kernels.Negligible

// sumSquares adds the squares of x in order.
func sumSquares(x []float32) float32 {
	var sum float32
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum
}

// meanSquare returns the mean of the squares of x, if there is an importance, which
// makes use of it.
func meanSquare(x, importance []float32) float32 {
	if importance == nil {
		return 0
	}
	return sumSquares(x) / float32(len(x))
}

// weigh sets w to importance*sqrt(average + x²).
func weigh(w, x, importance []float32, average float32) {
	for i, v := range x {
		w[i] = importance[i] * sqrt(average+float32(v*v))
	}
}

// squares sets w to the squares of x.
func squares(w, x []float32) {
	for i, v := range x {
		w[i] = v * v
	}
}

func sqrt(v float32) float32 { return float32(math.Sqrt(float64(v))) }

// wide is the search for a scale and a min by importance, its codes up to last.
func wide(block int, last float32) kernels.AffineSearch {
	return kernels.AffineSearch{Block: block, Last: last, First: -0.9, Step: 0.05, Tries: 37}
}

// searchSymmetric gives codes by the scale of least weighted error.
func (f simple) searchSymmetric(q *[small]byte, x, w []float32) (scale float32) {
	s := kernels.SymmetricSearch{Block: small, Half: float32(f.zero())}
	var found, inverse [1]float32
	s.Find(found[:], inverse[:], x, w)
	s.Codes(q[:], x, inverse[0])
	return found[0]
}

// searchAffine gives codes by the scale and the least value of least weighted error.
func (f simple) searchAffine(q *[small]byte, x, w []float32) (scale, low float32) {
	s := wide(small, float32(2*f.zero()-1))
	var found [4]float32
	s.Find(kernels.AffineFits{Scale: found[:1], Min: found[1:2], Inverse: found[2:3], Low: found[3:]}, x, w)
	s.Codes(q[:], x, found[2], found[3])
	return found[0], -found[1]
}

// nearest rounds v to an integer, ties to even, as an addition to a large number does:
// from 2^22 on the result is that of the last bits of the sum.
func nearest(v float32) int {
	return int(math.Float32bits(v+3<<22)&(1<<23-1)) - 1<<22
}

// fitPositive finds for numbers x that are not negative a scale and codes up to last,
// weighted by w: of nine scales that of least squares, then, code by code, whatever
// makes the fit of a common scale better.
func fitPositive(q []byte, x, w []float32, last int) (scale float32) {
	var largest float32
	for _, v := range x {
		if v > largest {
			largest = v
		}
	}
	if largest < negligible {
		clear(q)
		return 0
	}
	inverse := float32(last) / largest
	least := float32(0)
	for i, v := range x {
		q[i] = byte(nearest(inverse * v))
		d := v - float32(1/inverse*float32(q[i]))
		least += float32(float32(w[i]*d) * d)
	}
	for try := float32(-4); try <= 4; try++ {
		if try == 0 {
			continue
		}
		in := (float32(0.1*try) + float32(last)) / largest
		var sum float32
		for i, v := range x {
			d := v - float32(1/in*float32(min(last, nearest(in*v))))
			sum += float32(float32(w[i]*d) * d)
		}
		if sum < least {
			least, inverse = sum, in
		}
	}
	var f fit
	for i, v := range x {
		c := min(last, nearest(inverse*v))
		q[i] = byte(c)
		f.add(v, w[i], c)
	}
	f.refine(q, x, w, last)
	return f.scale()
}

// add adds an element and its code to the sums.
func (f *fit) add(v, w float32, code int) {
	c := float32(code)
	f.xq += float32(float32(w*v) * c)
	f.qq += float32(float32(w*c) * c)
}

// without returns the sums without an element and its code.
func (f fit) without(v, w float32, code int) fit {
	c := float32(code)
	return fit{f.xq - float32(float32(w*v)*c), f.qq - float32(float32(w*c)*c)}
}

// better reports whether a scale fits f closer than g.
func (f fit) better(g fit) bool {
	return float32(float32(f.xq*f.xq)*g.qq) > float32(float32(g.xq*g.xq)*f.qq)
}

// refine changes codes that are not negative, one by one, to what the scale of the
// others makes of their elements, if that fits better; five times over at most.
func (f *fit) refine(q []byte, x, w []float32, last int) {
	for range 5 {
		changed := false
		for i, v := range x {
			rest := f.without(v, w[i], int(q[i]))
			if !(rest.xq > 0 && rest.qq > 0) {
				continue
			}
			c := min(last, nearest(float32(v*rest.qq)/rest.xq))
			if c == int(q[i]) {
				continue
			}
			rest.add(v, w[i], c)
			if rest.better(*f) {
				q[i], *f, changed = byte(c), rest, true
			}
		}
		if !changed {
			return
		}
	}
}
