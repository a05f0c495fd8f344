package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// functionsOf are the functions of elements, their contracts in plain Go and their references.
var functionsOf = []struct {
	name      string
	got, want func(y, x []float32)
	truth     func(x float64) float64
}{
	{"Exp", Exp, expGo, math.Exp},
	{"Tanh", Tanh.Apply, func(y, x []float32) { rationalGo(y, x, Tanh) }, math.Tanh},
	{"Erf", Erf.Apply, func(y, x []float32) { rationalGo(y, x, Erf) }, math.Erf},
}

// The assembly gives the bits of plain Go, NaN aside, which stays NaN.
func TestFunctionBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for impl := range implementations(t) {
		for _, n := range lengths {
			x, y, want := wild(t, r, n), fenced[float32](t, n), make([]float32, n)
			for i := range n / 2 { // where the functions are neither 0 nor 1
				x[i] = float32(r.NormFloat64() * 20)
			}
			for _, f := range functionsOf {
				f.want(want, x)
				f.got(y, x)
				for i := range y {
					if math.Float32bits(y[i]) != math.Float32bits(want[i]) && (y[i] == y[i] || want[i] == want[i]) {
						t.Fatalf("%s: %s(%v) = %v, want %v", impl, f.name, x[i], y[i], want[i])
					}
				}
			}
		}
	}
}

func TestArithmeticBits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	clipped := func(f func(y, x []float32, least, most float32)) func(y, a, b []float32) {
		return func(y, a, _ []float32) { f(y, a, -1, 0.5) }
	}
	for impl := range implementations(t) {
		for _, n := range lengths {
			a, b, y, want := wild(t, r, n), wild(t, r, n), fenced[float32](t, n), make([]float32, n)
			for k, f := range [][2]func(y, a, b []float32){{Add, addGo}, {Subtract, subtractGo}, {Multiply, multiplyGo}, {Divide, divideGo}, {clipped(Clip), clipped(clipGo)}} {
				f[0](y, a, b)
				f[1](want, a, b)
				for i := range y {
					if math.Float32bits(y[i]) != math.Float32bits(want[i]) && (y[i] == y[i] || want[i] == want[i]) {
						t.Fatalf("%s: function %d of %v and %v is %v, want %v", impl, k, a[i], b[i], y[i], want[i])
					}
				}
			}
		}
	}
}

// The functions are near those of package math, and right at the ends.
func TestFunctionErrors(t *testing.T) {
	var x []float32
	for v := float32(1e-6); v < 120; v *= 1.0003 {
		x = append(x, v, -v)
	}
	x = append(x, 0, inf, -inf, nan)
	y := make([]float32, len(x))
	for _, f := range functionsOf {
		f.got(y, x)
		for i, v := range x {
			want := f.truth(float64(v))
			if e := math.Abs(float64(y[i]) - want); !(e <= 6e-7*math.Abs(want)+1.5e-45 || float64(y[i]) == want || float32(want) == y[i] || want != want && y[i] != y[i]) {
				t.Errorf("%s(%v) = %v, want %v", f.name, v, y[i], want)
			}
		}
	}
}

func TestDot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for impl := range implementations(t) {
		for _, n := range lengths {
			x, y := fenced[float32](t, n), fenced[float32](t, n)
			sum := 0.0
			for i := range x {
				x[i], y[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
				sum += float64(x[i]) * float64(y[i])
			}
			got := Dot(x, y)
			if want := dotGo(x, y); got != want || math.Abs(float64(got)-sum) > 1e-4 {
				t.Fatalf("%s: %d elements: %v, want %v, about %v", impl, n, got, want, sum)
			}
		}
	}
}
