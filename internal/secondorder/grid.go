package secondorder

import (
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
)

const (
	gridSteps = 24  // scales that are tried
	gridLeast = 0.5 // smallest scale tried, relative to the scale that clips nothing
	gridBelow = 2   // the least zero point tried is so far below the usual one
)

// GridTries is about how many scales FitGrid tries for a block. With Levels, tries take as much longer.
func GridTries(f Format) float64 {
	switch {
	case f.Levels != nil:
		return 6 * gridSteps
	case f.Codec.ZeroPoint:
		return gridSteps * (float64(int(1)<<(f.Codec.Bits-1)) + gridBelow)
	case f.Positive:
		return gridSteps
	}
	return 2 * gridSteps
}

// FitGrid sets codes, scales and zero points that minimize squared errors weighted by importance, block by block. It tries many
// scales: with zero points, those from a little below the usual one on; in symmetric formats, both signs. With Levels it tries scales near the
// known ones.
func (c *Columns) FitGrid(f Format, importance []float32) {
	if f.Levels != nil {
		c.fitLevels(f, importance)
		return
	}
	c.FitBlocks(f, f.Codec.Nearest())
	g := grid{columns: c, format: f}
	for from := 0; from < c.K; from += f.Block {
		g.from, g.to = from, min(from+f.Block, c.K)
		for i, v := range importance[from:g.to] {
			buffer.Grow(&g.weights, int64(g.to-from))[i] = float64(v)
		}
		for first := 0; first < c.N; first += kernels.GridLanes {
			g.fit(first, min(kernels.GridLanes, c.N-first))
		}
	}
}

// grid finds scales for a block of some columns side by side.
type grid struct {
	columns  *Columns
	format   Format
	from, to int // rows of the block
	weights  []float64
	x        []float32 // elements side by side
	sums     kernels.WeightedSums
	lanes    [kernels.GridLanes]lane
}

// lane is the best scale of a column so far, and the zero point beside it.
type lane struct {
	widest float32 // the scale that clips nothing
	usual  int32   // its zero point
	best   float64 // weighted ⟨x, q⟩²/⟨q, q⟩
	scale  float32
	zero   int32
}

// fit sets scales and codes of the n columns from first on.
func (g *grid) fit(first, n int) {
	c, f := g.columns, g.format
	kernels.ColumnLanes(buffer.Grow(&g.x, int64((g.to-g.from)*kernels.GridLanes)), c.Weights, c.N, first, n, g.from, g.to, 1)
	at := g.from/f.Block*c.N + first
	scales, zeros := c.Scales[at:][:n], c.Zeros[at:][:n]
	least, greatest := f.Codec.Limits()
	most := least // of the moves of zero points
	for j, scale := range scales {
		z := f.zero(zeros[j])
		g.lanes[j] = lane{scale, z, -1, scale, z}
		most = max(most, greatest-z)
	}
	for step := range gridSteps {
		part := float32(1 - (1-gridLeast)*float64(step)/gridSteps)
		if f.Codec.ZeroPoint {
			for move := int32(-gridBelow); move <= most; move++ {
				g.try(n, part, move)
			}
			continue
		}
		g.try(n, part, 0)
		if !f.Positive {
			g.try(n, -part, 0)
		}
	}
	for j, l := range g.lanes[:n] {
		scales[j], zeros[j] = l.scale, byte(l.zero)
		for i := g.from; i < g.to; i++ {
			at := i*c.N + first + j
			c.Codes[at] = byte(int32(nearest(c.Weights[at]/l.scale, float32(least-l.zero), float32(greatest-l.zero))) + l.zero)
		}
	}
}

// try tries parts of the widest scales, and zero points that are moved from the usual ones.
func (g *grid) try(n int, part float32, move int32) {
	f := g.format
	least, greatest := f.Codec.Limits()
	for j, l := range g.lanes[:n] {
		z := l.usual + move
		g.sums.Inverse[j] = 1 / float32(l.widest*part)
		g.sums.Least[j], g.sums.Greatest[j] = float32(least-z), float32(greatest-z)
	}
	g.sums.Find(g.x, g.weights)
	for j := range g.lanes[:n] {
		l := &g.lanes[j]
		z, xq, qq := l.usual+move, g.sums.XQ[j], g.sums.QQ[j]
		if z < least || z > greatest || !(qq > 0 && float64(xq*xq)/qq > l.best) {
			continue
		}
		if to := f.scale(xq/qq, l.widest*part > 0); to != 0 {
			l.best, l.scale, l.zero = float64(xq*xq)/qq, to, z
		}
	}
}

// Importance has the weights of squared errors, for the diagonal of a Hessian.
func Importance(diagonal []float32) []float32 {
	weights := make([]float32, len(diagonal))
	for i, v := range diagonal {
		weights[i] = max(v, 0) + Damping
	}
	return weights
}
