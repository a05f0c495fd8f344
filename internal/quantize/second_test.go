package quantize

import (
	"math"
	"math/rand/v2"
	"testing"
)

// W·Wᵀ of random columns is all noise; sums of a few vectors have little noise.
func TestChance(t *testing.T) {
	const k, n = 40, 60
	for name, want := range map[string]struct{ least, most float64 }{
		"random": {0.9, 1.1}, "sums": {0, 0.2}, "one column": {math.NaN(), math.NaN()}, "zeros": {math.NaN(), math.NaN()},
	} {
		r := rand.New(rand.NewPCG(1, 1))
		columns := n
		if name == "one column" {
			columns = 1
		}
		x := make([]float32, k*columns)
		for i := range x {
			switch name {
			case "random", "one column":
				x[i] = float32(r.NormFloat64())
			case "sums":
				x[i] = float32(math.Sin(float64(i/columns))*math.Cos(float64(i%columns)) + 0.1*r.NormFloat64())
			}
		}
		h := make([]float32, k*k)
		addProducts(h, x, k, columns)
		var trace, fourth float64
		for i := range k {
			trace += float64(h[i*k+i])
		}
		for j := range columns {
			length := 0.0
			for i := range k {
				length += float64(x[i*columns+j]) * float64(x[i*columns+j])
			}
			fourth += length * length
		}
		got := chanceOf(h, k, trace, fourth, float64(columns))
		if !(got >= want.least && got <= want.most) && !math.IsNaN(want.least) || math.IsNaN(want.least) && got <= mostChance {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
