package compare

import (
	"math"
	"math/rand/v2"
	"testing"
)

// roundedTo returns elements and their values with steps of a size, up to a largest code.
func roundedTo(step, most float64) (w, v []float32) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 64 {
		x := float32(rng.NormFloat64())
		w, v = append(w, x), append(v, float32(step*min(max(math.Round(float64(x)/step), -most), most)))
	}
	return w, v
}

// The code of another element is found, wherever it is; codes that clip and rounding are not.
func TestStray(t *testing.T) {
	for _, c := range []struct {
		step, most float64
		change     func(v []float32)
		stray      bool
		clipped    float64 // at least
	}{
		{0.5, 7, func([]float32) {}, false, 0},
		{0.25, 4, func([]float32) {}, false, 0.9},
		{0.5, 7, func(v []float32) { v[9] -= 1.5 }, true, 0},
	} {
		w, v := roundedTo(c.step, c.most)
		c.change(v)
		e, open := &measurement{blocks: oneBlock([]int64{64})}, make([]block, 1)
		e.add(open, w, v, 0)
		e.close(&open[0], 0)
		stray := (&pairs{w, v}).stray()
		if found := len(e.suspects) > 0 && stray > 4; found != c.stray {
			t.Errorf("%+v: %d suspects, stray %g", c, len(e.suspects), stray)
		}
		if share := e.clipped / e.all.SumSqErr; share < c.clipped || c.clipped == 0 && !c.stray && share > 0.1 {
			t.Errorf("%+v: %g clipped", c, share)
		}
	}
}
