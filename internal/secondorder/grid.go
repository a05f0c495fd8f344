package secondorder

import "onnxquant/internal/blocks"

// Grid is a blocks.Fitter that minimizes the squared error, weighted by the importance of each
// element. It tries many scales: with zero points, those near the usual one; in symmetric formats,
// both signs.
type Grid struct {
	format     Format
	nearest    blocks.Fitter
	importance []float32 // of the block's elements
}

// NewGrid returns a Grid without importance.
func NewGrid(f Format) *Grid { return &Grid{format: f, nearest: f.Codec.Nearest()} }

const (
	gridSteps  = 24  // scales that are tried
	gridLeast  = 0.5 // smallest scale tried, relative to the scale that clips nothing
	gridBeside = 2   // zero points on either side of the usual one
)

// Fit sets q to the codes of x.
func (g *Grid) Fit(q []byte, x []float32) (float32, byte) {
	f := g.format
	scale, zero := g.nearest.Fit(q, x)
	least, greatest := f.Codec.Limits()
	z := f.zero(zero)
	best, bestScale, bestZero := -1.0, scale, z
	importance := g.importance[:len(x)]
	try := func(s float32, z int32) {
		inverse, from, to := 1/s, float32(least-z), float32(greatest-z)
		var xq, qq float64
		for i, v := range x {
			n := nearest(v*inverse, from, to)
			w := float64(importance[i]) * float64(n)
			xq += w * float64(v)
			qq += w * float64(n)
		}
		if qq > 0 && float64(xq*xq)/qq > best {
			if to := f.scale(xq/qq, s > 0); to != 0 {
				best, bestScale, bestZero = xq*xq/qq, to, z
			}
		}
	}
	for step := range gridSteps {
		s := scale * float32(1-(1-gridLeast)*float64(step)/gridSteps)
		if !f.Codec.ZeroPoint {
			try(s, z)
			if !f.Positive {
				try(-s, z)
			}
			continue
		}
		for z := max(z-gridBeside, least); z <= min(z+gridBeside, greatest); z++ {
			try(s, z)
		}
	}
	for i, v := range x {
		q[i] = byte(int32(nearest(v/bestScale, float32(least-bestZero), float32(greatest-bestZero))) + bestZero)
	}
	return bestScale, byte(bestZero)
}

// FitGrid sets codes, scales and zero points that minimize squared errors weighted by importance. With Levels it tries
// scales near the known ones.
func (c *Columns) FitGrid(f Format, importance []float32) {
	if f.Levels != nil {
		c.fitLevels(f, importance)
		return
	}
	g := NewGrid(f)
	c.fitBlocks(f, g, func(from, n int) { g.importance = importance[from : from+n] })
}

// Importance has the weights of squared errors, for the diagonal of a Hessian.
func Importance(diagonal []float32) []float32 {
	weights := make([]float32, len(diagonal))
	for i, v := range diagonal {
		weights[i] = max(v, 0) + Damping
	}
	return weights
}
