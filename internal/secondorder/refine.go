package secondorder

import (
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/linalg"
)

// Refinement does coordinate descent as Descent does, in less time. Few codes change in a pass, so each change is added
// to the slope by itself. Scales change together, in one product of the Hessian. It has the buffers of one worker.
type Refinement struct {
	descent  Descent // its slope has a row for each column of the weight
	multiply linalg.SymmetricMultiplier
	part     []float32 // of the Hessian
	before   []float32 // values of a row
	changes  []change
}

// change is a move of one value.
type change struct {
	row, column int
	move        float32
}

// Improve changes the codes and scales of columns, of which f has just rounded the codes: codes, until none has a better
// value or for a few passes, then scales, then codes again, and the same once more. h is the Hessian. No step makes the
// error larger, except by rounding of the sums. Afterwards errors has the errors.
func (r *Refinement) Improve(f *Factor, rounded *Rounder, c *Columns, h linalg.Symmetric, format Format) {
	r.begin(f, rounded, c, h, format)
	r.settle(c, h, format)
	for range scalings {
		if format.Fixed || !r.moveScales(c, h, format) {
			break
		}
		r.settle(c, h, format)
	}
	r.end(c, format)
}

// begin finds the slope.
func (r *Refinement) begin(f *Factor, rounded *Rounder, c *Columns, h linalg.Symmetric, format Format) {
	k, n := c.K, c.N
	codes := buffer.Grow(&r.descent.codes, int64(k*n))
	for i := range k {
		format.multiples(codes[i*n:][:n], c.Codes[i*n:][:n], c.Zeros[i/format.Block*n:])
	}
	room, slope := buffer.Grow(&r.descent.moves, int64(k*n)), buffer.Grow(&r.descent.slope, int64(k*n))
	if k > short {
		f.slope(rounded, c, slope, codes, room, h.Diagonal, format)
		return
	}
	for i := range k {
		c.errorsOf(i, room[i*n:][:n], codes, format)
	}
	clear(slope)
	r.multiply.AddRight(linalg.Of(slope, n, k), c.matrix(room).T(), h, 0, 0)
}

// end stores the codes, and finds the errors.
func (r *Refinement) end(c *Columns, format Format) {
	k, n := c.K, c.N
	errs := buffer.Grow(&r.descent.errors, int64(n))
	clear(errs)
	for i := range k {
		scales, zeros := c.Scales[i/format.Block*n:], c.Zeros[i/format.Block*n:]
		row := r.descent.codes[i*n:][:n]
		format.code(c.Codes[i*n:][:n], row, zeros)
		format.decode(row, row, scales)
		for j, w := range c.Weights[i*n:][:n] {
			errs[j] += float64(row[j]-w) * float64(r.descent.slope[j*k+i])
		}
	}
}

// load sets near to the slope of some rows, and moves to 0.
func (r *Refinement) load(c *Columns, from, rows int) {
	k, n := c.K, c.N
	near := buffer.Grow(&r.descent.near, int64(rows*n))
	for j := range n {
		for i, v := range r.descent.slope[j*k+from:][:rows] {
			near[i*n+j] = v
		}
	}
	clear(buffer.Grow(&r.descent.moves, int64(rows*n)))
}

// settle gives each code its best value, until none changes or for a few passes.
func (r *Refinement) settle(c *Columns, h linalg.Symmetric, format Format) {
	for range passes {
		changed := false
		for from := 0; from < c.K; from += group {
			if r.moveCodes(c, h, format, from, min(group, c.K-from)) {
				changed = true
			}
		}
		if !changed {
			return
		}
	}
}

// moveCodes gives the codes of some rows their best values. It reports whether any changed.
func (r *Refinement) moveCodes(c *Columns, h linalg.Symmetric, format Format, from, rows int) bool {
	n := c.N
	r.load(c, from, rows)
	r.changes = r.changes[:0]
	for i := range rows {
		by := r.descent.moves[i*n:][:n]
		if !r.descent.moveRow(c, from+i, h.Diagonal[from+i], r.descent.near[i*n:], by, format) {
			continue
		}
		for j, v := range by {
			if v == 0 {
				continue
			}
			r.changes = append(r.changes, change{from + i, j, v})
			for k, curve := range h.Right(from + i)[:rows-i-1] {
				r.descent.near[(i+1+k)*n+j] += float32(curve * v)
			}
		}
	}
	r.apply(h, from, rows)
	return len(r.changes) > 0
}

// stretch is how many elements of a slope change at a time: those of all columns stay in the cache.
const stretch = 512

// apply adds changes of some rows to the slope.
func (r *Refinement) apply(h linalg.Symmetric, from, rows int) {
	if len(r.changes) == 0 {
		return
	}
	k := h.Rows()
	for left := 0; left < k; left += stretch {
		n := min(stretch, k-left)
		part := h.Part(&r.part, from, left, rows, n)
		if part.Column != 1 {
			part = h.Copy(&r.part, from, left, rows, n)
		}
		for _, m := range r.changes {
			kernels.AddMultiple(r.descent.slope[m.column*k+left:][:n], m.move, part.Data[(m.row-from)*part.Row:][:n])
		}
	}
}

// together is how many rows change their scales before the slope of all rows follows.
const together = 256

// moveScales gives each scale its best value. It reports whether any changed.
func (r *Refinement) moveScales(c *Columns, h linalg.Symmetric, format Format) (changed bool) {
	n, step := c.N, max(together/format.Block, 1)*format.Block
	for from := 0; from < c.K; from += step {
		rows := min(step, c.K-from)
		r.load(c, from, rows)
		moved := false
		for at := from; at < from+rows; at += format.Block {
			if r.moveBlock(c, h, format, at, min(format.Block, c.K-at), from, rows) {
				moved = true
			}
		}
		if moved {
			changed = true
			r.multiply.AddRight(linalg.Of(r.descent.slope, n, c.K), c.matrix(r.descent.moves[:rows*n]).T(), h, from, 0)
		}
	}
	return changed
}

// moveBlock gives the scales of a block, n rows from at on, their best values, and changes near and moves of the rows
// around it. It reports whether any changed.
func (r *Refinement) moveBlock(c *Columns, h linalg.Symmetric, format Format, at, rows, from, all int) bool {
	n := c.N
	codes := r.descent.codes[at*n:][:rows*n]
	curves := buffer.Grow(&r.descent.curves, int64(rows*n))
	clear(curves)
	r.multiply.AddLeft(c.matrix(curves), h, at, at, c.matrix(codes))
	r.descent.sums.reset(n)
	for i := range rows {
		r.descent.sums.add(codes[i*n:][:n], r.descent.near[(at-from+i)*n:][:n], curves[i*n:][:n], c.Weights[(at+i)*n:][:n])
	}
	scales := c.Scales[at/format.Block*n:][:n]
	if !r.descent.sums.improve(scales, format) {
		return false
	}
	before, moves := buffer.Grow(&r.before, int64(n)), r.descent.moves[(at-from)*n:][:rows*n]
	for i := range rows {
		row, by := codes[i*n:][:n], moves[i*n:][:n]
		format.decode(before, row, scales)
		format.decode(by, row, r.descent.sums.scales)
		for j, v := range before {
			by[j] -= v
		}
	}
	copy(scales, r.descent.sums.scales)
	if rows < all {
		r.multiply.AddLeft(c.matrix(r.descent.near[:all*n]), h, from, at, c.matrix(moves))
	}
	return true
}
