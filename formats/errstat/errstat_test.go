package errstat

import (
	"math"
	"testing"
)

func TestStats(t *testing.T) {
	var s Stats
	if s.MSE() != 0 || !math.IsInf(s.SQNR(), 1) {
		t.Errorf("no values: MSE %v, SQNR %v", s.MSE(), s.SQNR())
	}
	s.Add([]float32{1, 2}, []float32{1, 1})
	s.Add([]float32{-3, 0}, []float32{-3, -3})
	if s != (Stats{N: 4, MaxAbs: 3, SumSqErr: 10, SumSq: 14}) {
		t.Errorf("sums %+v", s)
	}
	if s.MSE() != 2.5 || s.SQNR() != 10*math.Log10(1.4) {
		t.Errorf("MSE %v, SQNR %v", s.MSE(), s.SQNR())
	}
	other := Stats{N: 1, MaxAbs: 5, SumSqErr: 25, SumSq: 1}
	other.Merge(s)
	if other != (Stats{N: 5, MaxAbs: 5, SumSqErr: 35, SumSq: 15}) {
		t.Errorf("merged sums %+v", other)
	}
}
