package layerfit

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
)

// observed returns the moments of rows with means far from 0, whose targets are off by a constant for each column.
func observed(t *testing.T, k, n, rows int, off []float32) (*moments, [][]float32) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	m := newMoments(k, 1, []*target{newTarget(k, n, true)})
	var all [][]float32
	for r := range rows {
		x, y := make([]float32, k), make([]float32, n)
		for i := range x {
			x[i] = float32(i) + float32(rng.NormFloat64())
		}
		for j := range y {
			y[j] = off[j] + 0.1*x[j%k] + 0.01*float32(rng.NormFloat64())
		}
		hold := r%4 == 3
		if err := m.add(context.Background(), 1, hold, x, [][]float32{y}); err != nil {
			t.Fatal(err)
		}
		if !hold {
			all = append(all, x)
		}
	}
	if err := m.flush(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	return m, all
}

// Centered moments are those of rows without their means.
func TestCenter(t *testing.T) {
	m, rows := observed(t, 5, 3, 200, []float32{1, -2, 3})
	m.center()
	mean := make([]float64, 5)
	for _, x := range rows {
		for i, v := range x {
			mean[i] += float64(v) / float64(len(rows))
		}
	}
	for i := range mean {
		for j := range i + 1 {
			var want float64
			for _, x := range rows {
				want += (float64(x[i]) - mean[i]) * (float64(x[j]) - mean[j])
			}
			if got := float64(m.h[i*5+j]); math.Abs(got-want) > 0.02 {
				t.Errorf("element %d, %d: %v, want %v", i, j, got, want)
			}
		}
		if g := float64(m.targets[0].g[i*3]); i > 0 && math.Abs(g) > 10 {
			t.Errorf("row %d of the target: %v, though the column depends on row 0 alone", i, g)
		}
	}
}

// The shift is the mean of what the product lacks, whether the moments are centered or not.
func TestShift(t *testing.T) {
	off := []float32{1, -2, 3}
	for _, centered := range []bool{false, true} {
		m, _ := observed(t, 5, 3, 400, off)
		if centered {
			m.center()
		}
		by := make([]float32, 5*3) // errors of the weights: 0.1 more in row j%5 of column j, as the target wants
		for j := range 3 {
			by[j*3+j] = 0.1
		}
		b := biased{m: m, target: m.targets[0], shift: make([]float32, 3)}
		b.find(by, 0, 3)
		for j, v := range b.shift {
			if math.Abs(float64(v-off[j])) > 0.01 {
				t.Errorf("centered %v: shift %d is %v, want %v", centered, j, v, off[j])
			}
		}
		if !(b.after < 0.01*b.before) {
			t.Errorf("centered %v: error %v, without shift %v", centered, b.after, b.before)
		}
	}
}
