package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Sums are those of one block after another, bit for bit.
func TestWeightedSums(t *testing.T) {
	for name := range implementations(t) {
		r := rand.New(rand.NewPCG(7, 7))
		for range 100 {
			rows := r.IntN(40)
			x := make([]float32, rows*GridLanes)
			if rows > 0 {
				x = sideBySide(t, r, rows)
			}
			weights := make([]float64, rows)
			for i := range weights {
				weights[i] = float64(float32(math.Exp(r.NormFloat64())))
			}
			var got WeightedSums
			for lane := range GridLanes {
				got.Inverse[lane] = float32(r.NormFloat64() * 10)
				got.Least[lane] = float32(-r.IntN(16))
				got.Greatest[lane] = got.Least[lane] + 15
			}
			if r.IntN(4) == 0 {
				got.Inverse[3] = float32(math.Inf(1))
			}
			got.Find(x, weights)
			for lane := range GridLanes {
				var xq, qq float64
				for i, weight := range weights {
					v := x[i*GridLanes+lane]
					q := float64(min(max(nearestInteger(v*got.Inverse[lane]), got.Least[lane]), got.Greatest[lane]))
					xq += float64(float64(weight*q) * float64(v))
					qq += float64(float64(weight*q) * q)
				}
				same := func(a, b float64) bool { return a == b || a != a && b != b }
				if !same(got.XQ[lane], xq) || !same(got.QQ[lane], qq) {
					t.Fatalf("%s, %d rows, lane %d: %v and %v, want %v and %v", name, rows, lane, got.XQ[lane], got.QQ[lane], xq, qq)
				}
			}
		}
	}
}
