package kernels

import "math"

// Errors returns the sum of squared differences of y from x, the sum of squares
// of x, and the largest magnitude of a difference, all taken in float64.
//
// The order of additions is part of the contract: elements i modulo 4 = j are
// added up, in order, as part j, and a sum is (part 0 + part 1) + (part 2 + part 3).
func Errors(x, y []float32) (sqErr, sq, maxAbs float64) {
	var p0, p1, p2, p3 sums
	y = y[:len(x)]
	for ; len(x) >= 4 && len(y) >= 4; x, y = x[4:], y[4:] {
		p0 = p0.add(x[0], y[0])
		p1 = p1.add(x[1], y[1])
		p2 = p2.add(x[2], y[2])
		p3 = p3.add(x[3], y[3])
	}
	switch len(x) {
	case 3:
		p2 = p2.add(x[2], y[2])
		fallthrough
	case 2:
		p1 = p1.add(x[1], y[1])
		fallthrough
	case 1:
		p0 = p0.add(x[0], y[0])
	}
	return p0.sqErr + p1.sqErr + (p2.sqErr + p3.sqErr),
		p0.sq + p1.sq + (p2.sq + p3.sq),
		math.Float64frombits(max(p0.maxAbs, p1.maxAbs, p2.maxAbs, p3.maxAbs))
}

type sums struct {
	sqErr, sq float64
	maxAbs    uint64 // bits, which order as the magnitudes do
}

func (s sums) add(x, y float32) sums {
	v := float64(x)
	d := v - float64(y)
	return sums{
		s.sqErr + float64(d*d),
		s.sq + float64(v*v),
		max(s.maxAbs, math.Float64bits(math.Abs(d))),
	}
}
