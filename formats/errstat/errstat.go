// Package errstat sums up quantization errors.
package errstat

import (
	"math"

	"onnxquant/internal/kernels"
)

// Stats sums up how far values are from what they stand for. The zero value
// is ready to use. Sums depend in their last bits on the order and the lengths of
// the pieces added; the same pieces in the same order give the same sums.
type Stats struct {
	N        int64   // values
	MaxAbs   float64 // the largest magnitude of an error
	SumSqErr float64 // of squared errors
	SumSq    float64 // of squared values
}

// Exact stands for the infinite SQNR of values without any error: JSON has no infinity.
const Exact = 999

// Add takes in values x and the y that stand for them, of the same number.
func (s *Stats) Add(x, y []float32) {
	sqErr, sq, maxAbs := kernels.Errors(x, y)
	s.Merge(Stats{N: int64(len(x)), MaxAbs: maxAbs, SumSqErr: sqErr, SumSq: sq})
}

// Merge takes in all that t has.
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
