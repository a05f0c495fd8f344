package int4

import (
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// LeastAngle returns the Fitter that searches the codes closest to the direction of the block. As
// vectors, w and q - z then have the least angle and so, with the best scale, the least squared error.
// It tries some scales; with zero points, several of them; in symmetric formats, both signs of the
// scale unless positive is set.
//
// The final scale is the one for which ⟨w, ŵ⟩ = ⟨w, w⟩: codes with the least squared error are shorter
// than the weights and would shrink the outputs. Where that scale costs more than it gains, the
// least-squares scale is used. The error of a block is never above that of Nearest.
func (c Codec) LeastAngle(positive bool) blocks.BlockFitter {
	return &leastAngle{Codec: c, format: c.format(), positive: positive}
}

type leastAngle struct {
	Codec
	format   kernels.Format
	positive bool

	lo, hi []float32         // of the blocks
	grid   []float32         // the codes of a block are nearest with this scale
	sums   kernels.ErrorSums // unused

	load   loader
	rows   int       // elements of a block
	x      []float32 // elements of blocks side by side
	search kernels.GridSearch
}

// loader sets dst to elements from, from+step, … below to of n blocks side by side.
type loader func(dst []float32, first, n, from, to, step int)

// lanes has a number for each of some blocks side by side.
type lanes = [kernels.GridLanes]float32

// mostRows is how many elements of a block are in memory at once. The search for a larger block
// looks at so many of its elements at most.
const mostRows = 1 << 14

func (f *leastAngle) Fit(q []byte, x []float32) (float32, byte) {
	var scale [1]float32
	var zero [1]byte
	f.FitColumns(q, x, scale[:], zero[:])
	return scale[0], zero[0]
}

func (f *leastAngle) FitColumns(q []byte, x, scale []float32, zero []byte) {
	n := len(scale)
	f.reset(n)
	kernels.RangeColumns(f.lo, f.hi, x)
	f.rows = len(x) / n
	f.load = func(dst []float32, first, count, from, to, step int) {
		kernels.ColumnLanes(dst, x, n, first, count, from, to, step)
	}
	f.fit(scale, zero)
	kernels.QuantizeColumns(q, x, f.grid, f.zeros(zero), f.format, &f.sums)
}

func (f *leastAngle) FitBlocks(q []byte, x, scale []float32, zero []byte, k, block int) {
	f.reset(len(scale))
	kernels.RangeBlocks(f.lo, f.hi, x, k, block)
	f.rows = min(block, k)
	f.load = func(dst []float32, first, count, from, to, step int) {
		kernels.BlockLanes(dst, x, k, block, first, count, from, to, step)
	}
	f.fit(scale, zero)
	kernels.QuantizeBlocks(q, x, f.grid, f.zeros(zero), k, block, f.format, &f.sums)
}

// reset makes room for n blocks.
func (f *leastAngle) reset(n int) {
	f.lo, f.hi, f.grid = slices.Grow(f.lo[:0], n)[:n], slices.Grow(f.hi[:0], n)[:n], slices.Grow(f.grid[:0], n)[:n]
	clear(f.lo)
	clear(f.hi)
}

// fit finds scales, zero points and grids of blocks with known ranges: first those of Nearest, then
// better ones.
func (f *leastAngle) fit(scale []float32, zero []byte) {
	lo, hi := f.lo, f.hi
	if !f.ZeroPoint {
		lo, hi = nil, f.grid // which nothing is in yet
		for i := range hi {
			hi[i] = max(-f.lo[i], f.hi[i])
		}
	}
	f.Scales(scale, zero, lo, hi)
	copy(f.grid, scale)
	const width = kernels.GridLanes
	n := width * min(f.rows, mostRows)
	f.x = slices.Grow(f.x[:0], n)[:n]
	for first := 0; first < len(scale); first += width {
		n := min(width, len(scale)-first)
		f.improve(first, scale[first:][:n], zero[first:][:n])
	}
}

// improve gives blocks from first on better scales, zero points and grids, where there are any.
func (f *leastAngle) improve(first int, scale []float32, zero []byte) {
	n := len(scale)
	var now found
	copy(now.grid[:], scale)
	for i := range now.zero {
		now.zero[i] = byte(f.middle())
	}
	if f.ZeroPoint {
		copy(now.zero[:], zero)
	}
	step := (f.rows-1)/mostRows + 1
	sample := f.part(first, n, 0, f.rows, step)
	worst := f.errors(first, n, &now, &now.grid)
	if step > 1 {
		f.part(first, n, 0, f.rows, step) // errors has overwritten the elements
	}
	f.aim(f.lo[first:][:n], f.hi[first:][:n], &worst)
	f.search.Find(sample, f.Bits == 2)
	open := f.take(n, &now, &worst)
	for _, gain := range []bool{true, false} {
		tried, left := f.scalesOf(n, gain, &now), false
		e := f.errors(first, n, &now, &tried)
		for i := range n {
			switch {
			case !open[i]:
			case e[i] <= worst[i] && f.usable(tried[i]):
				scale[i], zero[i], f.grid[first+i] = tried[i], now.zero[i], now.grid[i]
				open[i] = false
			default:
				left = true
			}
		}
		if !left {
			break
		}
	}
}

// usable reports whether a scale is a normal number, and codes times it are finite.
func (f *leastAngle) usable(scale float32) bool {
	codes := float32(int32(1) << f.Bits)
	a := abs(scale)
	if f.Type == dtype.Float32 {
		return a >= 0x1p-126 && a <= math.MaxFloat32/codes
	}
	return a >= 0x1p-126 && kernels.IsFinite(f.Type.Round(codes*scale))
}

// found is the result of a search for blocks side by side.
type found struct {
	grid lanes
	zero [kernels.GridLanes]byte
}

// part loads elements of blocks.
func (f *leastAngle) part(first, n, from, to, step int) []float32 {
	x := f.x[:(to-from+step-1)/step*kernels.GridLanes]
	f.load(x, first, n, from, to, step)
	return x
}

// errors returns the squared errors of codes that stand for multiples of scale. Blocks that are not
// too large are in memory.
func (f *leastAngle) errors(first, n int, codes *found, scale *lanes) (e [kernels.GridLanes]float64) {
	add := func(x []float32) {
		kernels.AddGridErrors(&e, x, &codes.grid, scale, &codes.zero, f.format)
	}
	if f.rows <= mostRows {
		add(f.x)
		return e
	}
	for from := 0; from < f.rows; from += mostRows {
		add(f.part(first, n, from, min(from+mostRows, f.rows), 1))
	}
	return e
}

// aim sets the range of inverse scales to try for blocks with the ranges lo … hi. Larger inverse
// scales clip so much that the error exceeds worst; smaller ones leave codes unused.
//
// Computations that depend on the weights are free of branches, here and below: each branch would be
// mispredicted for half of the blocks.
func (f *leastAngle) aim(lo, hi []float32, worst *[kernels.GridLanes]float64) {
	s := &f.search
	steps, half := float32(int32(1)<<f.Bits-1), float32(int32(1)<<(f.Bits-1))
	s.Steps, s.LeastZero, s.ToZero, s.PerUnit = steps, 0, steps, lanes{}
	if !f.ZeroPoint { // zero points are signs of the scale
		s.LeastZero, s.ToZero = half-1, half
		if f.positive {
			s.LeastZero = half
		}
	}
	tries := float32(kernels.GridTries(min(f.rows, mostRows)))
	for i, high := range hi[:min(len(hi), kernels.GridLanes)] {
		perUnit := 1 / max(-lo[i], high)
		low, high := float32(lo[i]*perUnit), float32(high*perUnit)
		span, lost := float32(2), 2*math.Sqrt(worst[i]) // one end is clipped, and then the other end matters too
		middle, slope := half-float32(bit(high > -low)), float32(0)
		if f.ZeroPoint {
			span, lost = high-low, math.Sqrt(2*worst[i])
			middle, slope = steps/2, (low+high)/2
		}
		from, to := max((steps-5)/span, 0.5), 4*(steps+1)/span
		if less := span - float32(float32(lost)*perUnit); less > 0 {
			to = min(to, (steps+1)/less)
		}
		to = max(to, 1.01*from)
		s.PerUnit[i], s.Middle[i], s.Slope[i] = perUnit, middle, slope
		s.First[i], s.Distance[i] = from, (to-from)/tries
	}
}

// take replaces grids and zero points by those found. It reports which blocks have one that may be
// better than worst.
func (f *leastAngle) take(n int, now *found, worst *[kernels.GridLanes]float64) (open [kernels.GridLanes]bool) {
	s := &f.search
	least, _ := f.limits()
	for i := range n {
		grid := 1 / (s.PerUnit[i] * s.Inverse[i])
		if open[i] = worst[i] > 0 && s.XQ[i] > 0 && grid >= 0x1p-126 && grid <= math.MaxFloat32; !open[i] {
			continue
		}
		if f.ZeroPoint {
			now.grid[i], now.zero[i] = grid, byte(int32(s.Zero[i])+least)
		} else {
			now.grid[i] = math.Float32frombits(math.Float32bits(grid) | uint32(bit(s.Zero[i] != s.ToZero))<<31)
		}
	}
	return open
}

// scalesOf returns the scales for the codes found: with gain, those for which ⟨w, ŵ⟩ = ⟨w, w⟩, else
// the least-squares scales. They have the signs of the grids.
func (f *leastAngle) scalesOf(n int, gain bool, now *found) (scale lanes) {
	s := &f.search
	over, under := &s.XQ, &s.QQ
	if gain {
		over, under = &s.XX, &s.XQ
	}
	for i := range n {
		a := over[i] / under[i] / s.PerUnit[i]
		sign := math.Float32bits(now.grid[i]) & (1 << 31)
		scale[i] = math.Float32frombits(math.Float32bits(a)&^(1<<31) | sign)
	}
	if f.Type != dtype.Float32 || f.smallScale() {
		for i := range n {
			scale[i] = f.RoundScale(scale[i])
		}
	}
	return scale
}

// bit is 1 if b is set, else 0.
func bit(b bool) int32 {
	var n int32
	if b {
		n = 1
	}
	return n
}
