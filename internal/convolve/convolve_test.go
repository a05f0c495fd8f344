package convolve

import (
	"math"
	"math/rand/v2"
	"testing"
)

// naive calls do for each pair of a window and an element of an image that meet.
func naive(g *Geometry, do func(out, tap, in int)) {
	for o := range volume(g.Out) {
		for t := range g.Taps() {
			place, at, inside := g.place(t), 0, true
			for a, n := range []int{o / g.Out[2] / g.Out[1], o / g.Out[2] % g.Out[1], o % g.Out[2]} {
				p := n*g.Stride[a] + place[a]
				inside = inside && p >= 0 && p < g.In[a]
				at = at*g.In[a] + p
			}
			if inside {
				do(o, t, at)
			}
		}
	}
}

func random(n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(n), 5))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

var shapes = []Shape{
	{Geometry{[3]int{1, 7, 9}, [3]int{1, 3, 3}, [3]int{1, 7, 9}, [3]int{1, 1, 1}, [3]int{1, 1, 1}, [3]int{0, 1, 1}}, 2, 1, 3, 5},
	{Geometry{[3]int{1, 7, 9}, [3]int{1, 3, 2}, [3]int{1, 5, 4}, [3]int{1, 2, 3}, [3]int{1, 2, 1}, [3]int{0, 3, 2}}, 1, 2, 4, 10},
	{Geometry{[3]int{3, 4, 5}, [3]int{2, 2, 2}, [3]int{3, 2, 3}, [3]int{1, 2, 2}, [3]int{1, 1, 1}, [3]int{1, 0, 1}}, 1, 4, 4, 4},
	{Geometry{[3]int{1, 6, 6}, [3]int{1, 1, 1}, [3]int{1, 6, 6}, [3]int{1, 1, 1}, [3]int{1, 1, 1}, [3]int{}}, 2, 1, 8, 7},
	{Geometry{[3]int{1, 2, 3}, [3]int{1, 3, 3}, [3]int{1, 6, 9}, [3]int{1, 1, 1}, [3]int{1, 2, 2}, [3]int{0, 4, 5}}, 1, 1, 1, 4},
	{Geometry{[3]int{1, 1, 9}, [3]int{1, 1, 3}, [3]int{1, 1, 5}, [3]int{1, 1, 2}, [3]int{1, 1, 1}, [3]int{0, 0, 1}}, 2, 1, 3, 5},
	{Geometry{[3]int{1, 1, 9}, [3]int{1, 1, 3}, [3]int{1, 1, 3}, [3]int{1, 1, 3}, [3]int{1, 1, 2}, [3]int{0, 0, 3}}, 1, 2, 4, 4},
}

func doubles(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

func near(t *testing.T, got []float32, want []float64) {
	t.Helper()
	for i, v := range got {
		if math.Abs(float64(v)-want[i]) > 1e-4 {
			t.Fatalf("element %d is %v, want %v", i, v, want[i])
		}
	}
}

// Convolutions and their transposes are those of the definition.
func TestConvolve(t *testing.T) {
	for _, s := range shapes {
		in, out, from, to := volume(s.In), volume(s.Out), s.From/s.Groups, s.To/s.Groups
		x, y, k := random(s.Images*s.From*in), random(s.Images*s.To*out), random(s.To*from*s.Taps())
		wantY, wantX := make([]float64, len(y)), make([]float64, len(x))
		for image := range s.Images {
			for m := range s.To {
				for c := range from {
					channel := image*s.From + m/to*from + c
					naive(&s.Geometry, func(o, tap, i int) {
						w := float64(k[(m*from+c)*s.Taps()+tap])
						wantY[(image*s.To+m)*out+o] += w * float64(x[channel*in+i])
						wantX[channel*in+i] += w * float64(y[(image*s.To+m)*out+o])
					})
				}
			}
		}
		biases := random(s.To)
		gotY, gotX := make([]float32, len(y)), make([]float32, len(x))
		if err := s.Convolve(t.Context(), 2, gotY, x, k, biases); err != nil {
			t.Fatal(err)
		}
		for i := range gotY {
			gotY[i] -= biases[i/out%s.To]
		}
		near(t, gotY, wantY)
		if err := s.Transpose(t.Context(), 2, gotX, y, k); err != nil {
			t.Fatal(err)
		}
		near(t, gotX, wantX)
		exact := make([]float64, len(y))
		Exactly(&s, exact, doubles(x), doubles(k))
		near(t, gotY, exact)
	}
}

func TestPool(t *testing.T) {
	for _, s := range shapes {
		in, out := volume(s.In), volume(s.Out)
		x, y := random(s.From*in), make([]float32, s.From*out)
		most, sums := make([]float64, len(y)), make([]float64, len(y))
		for i := range most {
			most[i] = math.Inf(-1)
		}
		for c := range s.From {
			naive(&s.Geometry, func(o, _, i int) {
				v := float64(x[c*in+i])
				most[c*out+o], sums[c*out+o] = max(most[c*out+o], v), sums[c*out+o]+v
			})
		}
		if err := MaxPool(t.Context(), &s.Geometry, 2, s.From, y, x, float32(math.Inf(-1))); err != nil {
			t.Fatal(err)
		}
		near(t, y, most)
		places, again := make([]int64, len(y)), make([]float32, len(y))
		MaxPlaces(&s.Geometry, s.From, again, places, x, float32(math.Inf(-1)))
		near(t, again, doubles(y))
		for i, v := range again {
			if places[i] >= 0 && x[i/out*in+int(places[i])] != v {
				t.Fatalf("place %d of element %d", places[i], i)
			}
		}
		if err := SumPool(t.Context(), &s.Geometry, 2, s.From, y, x); err != nil {
			t.Fatal(err)
		}
		near(t, y, sums)
	}
}
