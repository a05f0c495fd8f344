// Package errstat adds up quantization errors. The caller owns each [Stats]; Stats of several workers
// are merged into one.
package errstat

import (
	"math"

	"onnxquant/internal/kernels"
)

// Stats adds up the errors of decoded values. The zero value is ready to use. The last bits of the
// sums depend on the order and the lengths of the pieces added. The same pieces in the same order give
// the same sums.
type Stats struct {
	N        int64   // values
	MaxAbs   float64 // the largest magnitude of an error
	SumSqErr float64 // of squared errors
	SumSq    float64 // of squared values
}

// Exact replaces the infinite SQNR of values without any error: JSON has no infinity.
const Exact = 999

// Add adds values x and their decoded values y, which must have the same length.
func (s *Stats) Add(x, y []float32) {
	sqErr, sq, maxAbs := kernels.Errors(x, y)
	s.Merge(Stats{N: int64(len(x)), MaxAbs: maxAbs, SumSqErr: sqErr, SumSq: sq})
}

// Merge adds the sums of t.
func (s *Stats) Merge(t Stats) {
	s.N += t.N
	s.MaxAbs = max(s.MaxAbs, t.MaxAbs)
	s.SumSqErr += t.SumSqErr
	s.SumSq += t.SumSq
}

// MSE returns the mean squared error, 0 for no values.
func (s Stats) MSE() float64 {
	if s.N == 0 {
		return 0
	}
	return s.SumSqErr / float64(s.N)
}

// SQNR returns the signal-to-quantization-noise ratio in dB, +Inf for no error.
func (s Stats) SQNR() float64 {
	if s.SumSqErr == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(s.SumSq/s.SumSqErr)
}
