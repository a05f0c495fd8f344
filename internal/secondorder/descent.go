package secondorder

import (
	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
)

// Descent has the buffers of one worker. It changes codes and scales one by one, each to its best
// value while all others stay.
type Descent struct {
	multiply linalg.Multiplier
	slope    []float32 // H·e
	errors   []float64 // eᵀHe of each column
	codes    []float32 // multiples of the scale
	moves    []float32 // how far the values of some rows move
	near     []float32 // slope of some rows
	curves   []float32 // H·codes, within a block
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
		for j := range n {
			at := i*n + j
			codes[at] = format.multiple(c.Codes[at], format.zero(zeros[j]))
			errs[at] = format.value(codes[at], scales[j]) - c.Weights[at]
		}
	}
	slope := buffer.Grow(&d.slope, int64(k*n))
	clear(slope)
	d.multiply.Add(c.matrix(slope), 1, hessian, c.matrix(errs))
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
		for j := range n {
			at := i*n + j
			c.Codes[at] = format.code(codes[at], format.zero(zeros[j]))
			errors[j] += float64(format.value(codes[at], scales[j])-c.Weights[at]) * float64(slope[at])
		}
	}
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
				addRow(near[j*n:], row[j], by)
			}
		}
		if moved {
			changed = true
			d.multiply.Add(c.matrix(d.slope), 1, h.Part(0, from, c.K, rows), c.matrix(moves))
		}
	}
	return changed
}

// moveRow gives the codes of a row their best values, and sets by to how far they move.
func (d *Descent) moveRow(c *Columns, i int, curve float32, slope, by []float32, f Format) (changed bool) {
	n := c.N
	scales, zeros := c.Scales[i/f.Block*n:][:n], c.Zeros[i/f.Block*n:][:n]
	codes, slope := d.codes[i*n:][:n], slope[:n]
	for j, code := range codes {
		s, z := scales[j], f.zero(zeros[j])
		best := f.nearest(code-slope[j]/float32(curve*f.step(s)), z)
		if best == code {
			continue
		}
		move := f.value(best, s) - f.value(code, s)
		if float32(2*move*slope[j])+float32(float32(move*move)*curve) < 0 {
			codes[j], by[j], changed = best, move, true
		}
	}
	return changed
}

// mostReach is how far the codes of a block may reach once its scale grew, over its largest weight. Where
// the inputs hardly vary, the best scale may be many times as large.
const mostReach = 2

// moveScales gives each scale its best value. It reports whether any changed.
func (d *Descent) moveScales(c *Columns, h linalg.Matrix, format Format) (changed bool) {
	n := c.N
	down, curve, largest := make([]float64, n), make([]float64, n), make([]float32, n)
	for from := 0; from < c.K; from += format.Block {
		rows := min(format.Block, c.K-from)
		codes := d.codes[from*n:][:rows*n]
		curves := buffer.Grow(&d.curves, int64(rows*n))
		clear(curves)
		d.multiply.Add(c.matrix(curves), 1, h.Part(from, from, rows, rows), c.matrix(codes))
		clear(down)
		clear(curve)
		clear(largest)
		for i, w := range c.Weights[from*n:][:rows*n] {
			largest[i%n] = max(largest[i%n], w, -w)
		}
		for i, code := range codes {
			down[i%n] += float64(code) * float64(d.slope[from*n+i])
			curve[i%n] += float64(code) * float64(curves[i])
		}
		moves := buffer.Grow(&d.moves, int64(rows*n))
		clear(moves)
		moved := false
		scales := c.Scales[from/format.Block*n:][:n]
		for j, s := range scales {
			step := float64(format.step(s))
			to := format.scale(step-down[j]/curve[j], format.Positive || s > 0)
			by := float64(format.step(to)) - step
			if to == 0 || by/step > 0 && format.reach(to) > mostReach*float64(largest[j]) || !(2*by*down[j]+by*by*curve[j] < 0) {
				continue
			}
			for i := range rows {
				moves[i*n+j] = format.value(codes[i*n+j], to) - format.value(codes[i*n+j], s)
			}
			scales[j], moved = to, true
		}
		if moved {
			changed = true
			d.multiply.Add(c.matrix(d.slope), 1, h.Part(0, from, c.K, rows), c.matrix(moves))
		}
	}
	return changed
}
