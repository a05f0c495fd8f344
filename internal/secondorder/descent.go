package secondorder

import (
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/linalg"
)

// Descent does coordinate descent: it changes codes and scales one by one, each to its best value
// while all others stay. It has the buffers of one worker.
type Descent struct {
	multiply linalg.Multiplier
	slope    []float32 // H·e
	errors   []float64 // eᵀHe of each column
	codes    []float32 // multiples of the scale
	moves    []float32 // how far the values of some rows move
	near     []float32 // slope of some rows
	curves   []float32 // H·codes, within a block
	best     []float32 // multiples, of a row
	sums     sums
}

// sums has numbers for each column, of the codes of a block.
type sums struct {
	down, curve []float64 // codesᵀ·slope, codesᵀ·H·codes
	largest     []float32 // magnitude of a weight
	scales      []float32 // the best ones
}

// Improve changes the codes and scales of columns in a number of passes. h is the Hessian, with K
// rows. No step makes the error larger, except by rounding of the sums. Afterwards
// d.errors has the errors.
func (d *Descent) Improve(c *Columns, h []float32, format Format, passes int) {
	k, n := c.K, c.N
	hessian := linalg.Of(h, k, k)
	codes := buffer.Grow(&d.codes, int64(k*n))
	errs := buffer.Grow(&d.moves, int64(k*n))
	for i := range k {
		scales, zeros := c.Scales[i/format.Block*n:], c.Zeros[i/format.Block*n:]
		row, by := codes[i*n:][:n], errs[i*n:][:n]
		format.multiples(row, c.Codes[i*n:][:n], zeros)
		format.decode(by, row, scales)
		for j, w := range c.Weights[i*n:][:n] {
			by[j] -= w
		}
	}
	slope := buffer.Grow(&d.slope, int64(k*n))
	clear(slope)
	d.multiply.Add(c.matrix(slope), 1, columnsOf(hessian, 0, k), c.matrix(errs))
	for range passes {
		changed := d.moveCodes(c, hessian, format)
		if !format.Fixed && d.moveScales(c, hessian, format) {
			changed = true
		}
		if !changed {
			break
		}
	}
	errors := buffer.Grow(&d.errors, int64(n))
	clear(errors)
	for i := range k {
		scales, zeros := c.Scales[i/format.Block*n:], c.Zeros[i/format.Block*n:]
		row := codes[i*n:][:n]
		format.code(c.Codes[i*n:][:n], row, zeros)
		format.decode(row, row, scales)
		for j, w := range c.Weights[i*n:][:n] {
			errors[j] += float64(row[j]-w) * float64(slope[i*n+j])
		}
	}
}

// columnsOf returns some columns of a symmetric matrix. They are read as rows, which is faster.
func columnsOf(h linalg.Matrix, first, n int) linalg.Matrix {
	return h.Part(first, 0, n, h.Rows).T()
}

// moveCodes gives each code its best value. It reports whether any changed.
func (d *Descent) moveCodes(c *Columns, h linalg.Matrix, format Format) (changed bool) {
	n := c.N
	for from := 0; from < c.K; from += group {
		rows := min(group, c.K-from)
		moves := buffer.Grow(&d.moves, int64(rows*n))
		clear(moves)
		near := buffer.Grow(&d.near, int64(rows*n))
		copy(near, d.slope[from*n:])
		moved := false
		for i := range rows {
			row := h.Data[(from+i)*h.Row+from:]
			by := moves[i*n:][:n]
			if !d.moveRow(c, from+i, row[i], near[i*n:], by, format) {
				continue
			}
			moved = true
			for j := i + 1; j < rows; j++ {
				kernels.AddMultiple(near[j*n:], row[j], by)
			}
		}
		if moved {
			changed = true
			d.multiply.Add(c.matrix(d.slope), 1, columnsOf(h, from, rows), c.matrix(moves))
		}
	}
	return changed
}

// moveRow gives the codes of a row their best values, and sets by to how far they move.
func (d *Descent) moveRow(c *Columns, i int, curve float32, slope, by []float32, f Format) (changed bool) {
	n := c.N
	scales, zeros := c.Scales[i/f.Block*n:][:n], c.Zeros[i/f.Block*n:][:n]
	codes, slope, by := d.codes[i*n:][:n], slope[:n], by[:n]
	best, outer := buffer.Grow(&d.best, int64(n)), f.step(1)
	for j, code := range codes {
		best[j] = code - slope[j]/float32(curve*float32(scales[j]*outer))
	}
	f.nearest(best, zeros)
	for j, code := range codes {
		if best[j] == code {
			continue
		}
		move := f.value(best[j], scales[j]) - f.value(code, scales[j])
		if float32(2*move*slope[j])+float32(float32(move*move)*curve) < 0 {
			codes[j], by[j], changed = best[j], move, true
		}
	}
	return changed
}

// mostReach limits the range of a block's codes after its scale grew, relative to the largest weight.
// If the inputs hardly vary, the best scale may be many times as large.
const mostReach = 2

// moveScales gives each scale its best value. It reports whether any changed.
func (d *Descent) moveScales(c *Columns, h linalg.Matrix, format Format) (changed bool) {
	n := c.N
	for from := 0; from < c.K; from += format.Block {
		rows := min(format.Block, c.K-from)
		codes := d.codes[from*n:][:rows*n]
		curves := buffer.Grow(&d.curves, int64(rows*n))
		clear(curves)
		d.multiply.Add(c.matrix(curves), 1, h.Part(from, from, rows, rows).T(), c.matrix(codes))
		d.sums.reset(n)
		for i := range rows {
			at := from + i
			d.sums.add(codes[i*n:][:n], d.slope[at*n:][:n], curves[i*n:][:n], c.Weights[at*n:][:n])
		}
		scales := c.Scales[from/format.Block*n:][:n]
		if !d.sums.improve(scales, format) {
			continue
		}
		changed = true
		moves, before := buffer.Grow(&d.moves, int64(rows*n)), buffer.Grow(&d.best, int64(n))
		for i := range rows {
			row, by := codes[i*n:][:n], moves[i*n:][:n]
			format.decode(before, row, scales)
			format.decode(by, row, d.sums.scales)
			for j, v := range before {
				by[j] -= v
			}
		}
		copy(scales, d.sums.scales)
		d.multiply.Add(c.matrix(d.slope), 1, columnsOf(h, from, rows), c.matrix(moves))
	}
	return changed
}

// reset begins a block of n columns.
func (s *sums) reset(n int) {
	clear(buffer.Grow(&s.down, int64(n)))
	clear(buffer.Grow(&s.curve, int64(n)))
	clear(buffer.Grow(&s.largest, int64(n)))
	buffer.Grow(&s.scales, int64(n))
}

// add adds a row.
func (s *sums) add(codes, slope, curves, weights []float32) {
	slope, curves = slope[:len(codes)], curves[:len(codes)]
	down, curve, largest := s.down[:len(codes)], s.curve[:len(codes)], s.largest[:len(codes)]
	for j, code := range codes {
		down[j] += float64(code) * float64(slope[j])
		curve[j] += float64(code) * float64(curves[j])
	}
	for j, w := range weights[:len(codes)] {
		largest[j] = max(largest[j], w, -w)
	}
}

// improve sets the best scales, near the scales of now. It reports whether any changed.
func (s *sums) improve(now []float32, format Format) (others bool) {
	for j, scale := range now {
		s.scales[j] = scale
		step, down, curve := float64(format.step(scale)), s.down[j], s.curve[j]
		to := format.scale(step-down/curve, format.Positive || scale > 0)
		by := float64(format.step(to)) - step
		if to == 0 || by/step > 0 && format.reach(to) > mostReach*float64(s.largest[j]) || !(2*by*down+by*by*curve < 0) {
			continue
		}
		s.scales[j], others = to, true
	}
	return others
}
