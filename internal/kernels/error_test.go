package kernels

import (
	"math"
	"math/big"
	"testing"
)

func TestErrors(t *testing.T) {
	for range implementations(t) {
		r := random(8)
		for n := range 101 {
			x, y := make([]float32, n), make([]float32, n)
			var e, s [8]float64
			var want float32
			for i := range x {
				x[i], y[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
				d := x[i] - y[i]
				e[i%8] += float64(d) * float64(d)
				s[i%8] += float64(x[i]) * float64(x[i])
				want = max(want, float32(math.Abs(float64(d))))
			}
			sqErr, sq, maxAbs := Errors(x, y)
			if sqErr != e[0]+e[1]+(e[2]+e[3])+(e[4]+e[5]+(e[6]+e[7])) ||
				sq != s[0]+s[1]+(s[2]+s[3])+(s[4]+s[5]+(s[6]+s[7])) || maxAbs != float64(want) {
				t.Fatalf("%d elements: %v, %v, %v, want %v, %v, %v", n, sqErr, sq, maxAbs, e, s, want)
			}
		}
	}
}

// Sums are as near to the true ones as the documentation says.
func TestErrorsAccuracy(t *testing.T) {
	const n = 100000
	r := random(9)
	x, y := make([]float32, n), make([]float32, n)
	sqErr, sq := new(big.Float).SetPrec(1000), new(big.Float).SetPrec(1000)
	square := func(v float64) *big.Float {
		b := new(big.Float).SetPrec(200).SetFloat64(v)
		return b.Mul(b, b)
	}
	for i := range x {
		x[i] = float32(r.NormFloat64())
		y[i] = float32(math.RoundToEven(float64(x[i])*8)) / 8
		sqErr.Add(sqErr, square(float64(x[i])-float64(y[i])))
		sq.Add(sq, square(float64(x[i])))
	}
	gotErr, got, _ := Errors(x, y)
	check := func(got float64, sum *big.Float) {
		want, _ := sum.Float64()
		if off := math.Abs(got-want) / want; off > (n/8+3)*0x1p-53 {
			t.Errorf("%v, want %v: off by %v of it", got, want, off)
		}
	}
	check(gotErr, sqErr)
	check(got, sq)
}
