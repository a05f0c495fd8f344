package kernels

import "math"

// ErrorSums adds up the errors of decoded values y against x. The zero value is
// ready to use.
//
// Differences are in float32. A difference is exact if y is 0 or between half and twice x (Sterbenz's
// lemma): that holds for codes unless they are clamped to less than half of x. Otherwise its relative
// error is at most 2^-24. Squares and sums are in float64. There, squares of float32 numbers are exact,
// so fused multiply-adds make no difference.
//
// The order of additions is part of the contract. The squares of elements i of a row or block with
// i modulo 8 = j are added, in the order of memory, to part j. A total is
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) of the parts. Its relative error is below n/8+3 times 2^-53
// for n elements.
type ErrorSums struct {
	sqErr, sq [8]float64
	maxAbs    uint32 // bits, which order as the magnitudes do
}

// Add adds the errors of one row.
func (s *ErrorSums) Add(x, y []float32) {
	if len(x) > 0 {
		s.add(x, y[:len(x)])
	}
}

func (s *ErrorSums) addGo(x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		d := v - y[i]
		s.sqErr[i%8] += float64(d) * float64(d)
		s.sq[i%8] += float64(v) * float64(v)
		s.maxAbs = max(s.maxAbs, abs(d))
	}
}

// Totals returns the sum of squared differences of y from x, the sum of squares
// of x, and the largest magnitude of a difference.
func (s *ErrorSums) Totals() (sqErr, sq, maxAbs float64) {
	return total(&s.sqErr), total(&s.sq), float64(math.Float32frombits(s.maxAbs))
}

// Squared returns the sum of squared differences.
func (s *ErrorSums) Squared() float64 { return total(&s.sqErr) }

func total(p *[8]float64) float64 {
	return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]))
}

// Errors returns the totals of one row.
func Errors(x, y []float32) (sqErr, sq, maxAbs float64) {
	var s ErrorSums
	s.Add(x, y)
	return s.Totals()
}
