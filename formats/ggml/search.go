package ggml

import (
	"math"

	"onnxquant/internal/kernels"
)

// negligible is the magnitude below which a block is treated as zeros.
const negligible = kernels.Negligible

// sumSquares adds the squares of x in order.
func sumSquares(x []float32) float32 {
	var sum float32
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum
}

// sum adds x in order.
func sum(x []float32) float32 {
	var sum float32
	for _, v := range x {
		sum += v
	}
	return sum
}

// weigh sets w to importance*sqrt(average + x²).
func weigh(w, x, importance []float32, average float32) {
	for i, v := range x {
		w[i] = importance[i] * sqrt(float32(average)+float32(v*v))
	}
}

func sqrt(v float32) float32 { return float32(math.Sqrt(float64(v))) }

// byImportance is the search for a scale and a min with an importance, its codes up to
// last.
func byImportance(block int, last float32) kernels.AffineSearch {
	return kernels.AffineSearch{Block: block, Last: last, First: -0.9, Step: 0.05, Tries: 37}
}

// atOnce is the number of elements that are searched at once.
const atOnce = 512

// found is the result of a search for blocks of at least 16 elements.
type found struct {
	scale, min, inverse, low [atOnce / 16]float32
	weights                  [atOnce]float32
}

// fits returns the fits of n blocks.
func (f *found) fits(n int) kernels.AffineFits {
	return kernels.AffineFits{Scale: f.scale[:n], Min: f.min[:n], Inverse: f.inverse[:n], Low: f.low[:n]}
}

// fitPositive finds a scale and codes up to last for the numbers of x, which are not negative,
// weighted by w. It takes the best of nine scales by least squares, then changes single codes as long
// as a common scale fits better.
func fitPositive(q []byte, x, w []float32, last int) (scale float32) {
	x, w = x[:len(q)], w[:len(q)]
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
	scale = 1 / inverse
	least := float32(0)
	for i, v := range x {
		q[i] = byte(kernels.NearestInt(inverse * v))
		d := v - float32(scale*float32(q[i]))
		least += float32(float32(w[i]*d) * d)
	}
	for try := float32(-4); try <= 4; try++ {
		if try == 0 {
			continue
		}
		in := (float32(0.1*try) + float32(last)) / largest
		scale, sum := 1/in, float32(0)
		for i, v := range x {
			d := v - float32(scale*float32(min(last, kernels.NearestInt(in*v))))
			sum += float32(float32(w[i]*d) * d)
		}
		if sum < least {
			least, inverse = sum, in
		}
	}
	var f fit
	for i, v := range x {
		c := min(last, kernels.NearestInt(inverse*v))
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

// refine changes codes, which are not negative, one by one. A code becomes the element divided by the
// scale that fits the others, if that improves the fit. It makes at most five passes.
func (f *fit) refine(q []byte, x, w []float32, last int) {
	for range 5 {
		changed := false
		for i, v := range x {
			rest := f.without(v, w[i], int(q[i]))
			if !(rest.xq > 0 && rest.qq > 0) {
				continue
			}
			c := min(last, kernels.NearestInt(float32(v*rest.qq)/rest.xq))
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
