package knapsack

import (
	"math"
	"math/rand/v2"
	"testing"
)

// exhaust tries everything.
func exhaust(classes [][]Choice, capacity float64) (least float64) {
	least = math.Inf(1)
	var try func(i int, cost, weight float64)
	try = func(i int, cost, weight float64) {
		if weight > capacity {
			return
		}
		if i == len(classes) {
			least = min(least, cost)
			return
		}
		for _, c := range classes[i] {
			try(i+1, cost+c.Cost, weight+c.Weight)
		}
	}
	try(0, 0, 0)
	return least
}

func TestOptimal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 3000 {
		classes := make([][]Choice, 1+r.IntN(7))
		for i := range classes {
			classes[i] = make([]Choice, 1+r.IntN(5))
			for j := range classes[i] {
				c := &classes[i][j]
				if n%2 == 0 { // many ties
					*c = Choice{float64(r.IntN(6)), float64(r.IntN(6))}
				} else {
					*c = Choice{r.Float64(), r.Float64()}
				}
			}
		}
		capacity := r.Float64() * 4 * float64(len(classes)) * 0.3
		if n%2 == 0 {
			capacity = float64(r.IntN(5 * len(classes)))
		}
		want := exhaust(classes, capacity)
		got, ok := Solve(classes, capacity)
		if ok != !math.IsInf(want, 1) {
			t.Fatalf("%v, capacity %v: %v, want %v", classes, capacity, ok, want)
		}
		if !ok {
			continue
		}
		cost, weight := 0.0, 0.0
		for i, j := range got.Pick {
			cost, weight = cost+classes[i][j].Cost, weight+classes[i][j].Weight
		}
		if cost != got.Cost || weight != got.Weight || weight > capacity {
			t.Fatalf("%v, capacity %v: %+v does not add up", classes, capacity, got)
		}
		if math.Abs(cost-want) > 1e-9 || got.Bound > want+1e-9 || got.Bound < want-1e-9 {
			t.Fatalf("%v, capacity %v: %+v, want %v", classes, capacity, got, want)
		}
	}
}

// A model of many weights: the optimum is found, or a gap of next to nothing is told.
func TestLarge(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	var classes [][]Choice
	lightest, cheapest := 0.0, 0.0
	for range 2000 {
		size := float64(int(1 << (10 + r.IntN(14))))
		noise := 0.5 + r.Float64()
		classes = append(classes, []Choice{
			{0.01 * noise, size * 4.25}, {0.0085 * noise, size * 4.5}, {0.007 * noise, size * 5}, {0.005 * noise, size * 5.1},
			{0.00003 * noise, size * 8.3}, {0, size * 32},
		})
		lightest, cheapest = lightest+size*4.25, cheapest+size*32
	}
	for _, f := range []float64{0.001, 0.02, 0.1, 0.3, 0.9} {
		s, ok := Solve(classes, lightest+f*(cheapest-lightest))
		t.Logf("%v: gap %.2g", f, (s.Cost-s.Bound)/s.Cost)
		if !ok || s.Bound > s.Cost || s.Cost-s.Bound > 1e-4*s.Cost {
			t.Errorf("%v: cost %v, bound %v", f, s.Cost, s.Bound)
		}
	}
}

func TestEdges(t *testing.T) {
	if s, ok := Solve(nil, 0); !ok || s.Cost != 0 || s.Bound != 0 {
		t.Errorf("no classes: %+v, %v", s, ok)
	}
	if _, ok := Solve([][]Choice{{{1, 2}}}, 1.9); ok {
		t.Error("too heavy, but solved")
	}
	if s, ok := Solve([][]Choice{{{1, 2}, {0, 2}, {0, 1}}}, 2); !ok || s.Pick[0] != 2 {
		t.Errorf("of equals the lightest: %+v, %v", s, ok)
	}
}

// No solution is below the frontier, and its points are solutions.
func TestFrontier(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		classes := make([][]Choice, 1+r.IntN(4))
		for i := range classes {
			for range 1 + r.IntN(4) {
				classes[i] = append(classes[i], Choice{float64(r.IntN(9)), float64(r.IntN(9))})
			}
		}
		line := Frontier(classes)
		for i, p := range line {
			if got := exhaust(classes, p.Weight+1e-9); math.Abs(got-p.Cost) > 1e-9 {
				t.Fatalf("%v: the least cost within %v is %v, the frontier has %v", classes, p.Weight, got, p.Cost)
			}
			if i == 0 {
				continue
			}
			before := line[i-1]
			for part := range 10 {
				weight := before.Weight + (p.Weight-before.Weight)*float64(part)/10
				chord := before.Cost + (p.Cost-before.Cost)*float64(part)/10
				if exhaust(classes, weight) < chord-1e-9 {
					t.Fatalf("%v: a solution is below the line from %v to %v", classes, before, p)
				}
			}
		}
	}
}
