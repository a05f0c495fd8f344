package secondorder

import (
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/linalg"
	"onnxquant/internal/packing"
)

// Rounder has the buffers of one worker.
type Rounder struct {
	multiply linalg.Multiplier
	owed     []float32 // errors that rows must compensate, times the diagonal of L
	errs     []float32 // errors of the rows of a group
	triangle []float32 // of L, on its diagonal
}

// group is the number of rows that are rounded before their errors reach the rows after them.
const group = 64

// Round sets the codes of columns whose scales and zero points are known. The element with the largest
// diagonal comes first. After each rounding, the optimum of the remaining elements moves: with e the
// errors so far, row i becomes w - Σ e·L / L(i,i), summed over the rounded elements.
func (f *Factor) Round(r *Rounder, c *Columns, format Format) {
	k, n := c.K, c.N
	owed := buffer.Grow(&r.owed, int64(k*n))
	clear(owed)
	for end := k; end > 0; end -= group {
		from := max(end-group, 0)
		errs := buffer.Grow(&r.errs, int64((end-from)*n))
		for i := end - 1; i >= from; i-- {
			at := int(f.order[i])
			row := f.l.Data[i*k:]
			err := errs[(i-from)*n:][:n]
			inverse := 1 / row[i]
			c.roundRow(at, format, owed[i*n:], inverse, err)
			for j := from; j < i; j++ {
				kernels.AddMultiple(owed[j*n:], row[j], err)
			}
		}
		if from > 0 {
			r.multiply.Add(linalg.Of(owed, from, n), 1, f.l.Part(from, 0, end-from, from).T(), linalg.Of(errs, end-from, n))
		}
	}
}

// slope sets rows of slope, one for each column, to H·e for the errors e of the codes that Round has just set. multiples
// are these codes. H is L·Lᵀ with another diagonal, and Round knows Lᵀ·e except for its own diagonal: so this takes half a
// product. product has room for K rows.
func (f *Factor) slope(r *Rounder, c *Columns, slope, multiples, product, diagonal []float32, format Format) {
	k, n := c.K, c.N
	errs := buffer.Grow(&r.errs, int64(n))
	for i := range k {
		c.errorsOf(int(f.order[i]), errs, multiples, format)
		kernels.AddMultiple(r.owed[i*n:][:n], f.l.Data[i*(k+1)], errs)
	}
	clear(product[:k*n])
	to, from := linalg.Of(product, k, n), linalg.Of(r.owed, k, n)
	for i := 0; i < k; i += panel {
		rows := min(panel, k-i)
		r.multiply.Add(to.Part(i, 0, rows, n), 1, f.l.Part(i, 0, rows, i), from.Part(0, 0, i, n))
		r.multiply.Add(to.Part(i, 0, rows, n), 1, f.lower(&r.triangle, i, rows), from.Part(i, 0, rows, n))
	}
	for i, at := range f.order {
		c.errorsOf(int(at), errs, multiples, format)
		row := r.owed[int(at)*n:][:n]
		copy(row, product[i*n:])
		kernels.AddMultiple(row, diagonal[at]-f.diagonal[i], errs)
	}
	packing.Transpose(slope, r.owed, k, n)
}

// panel is how many rows of L are multiplied at a time.
const panel = 240

// lower returns a square of L on its diagonal, with zeros above.
func (f *Factor) lower(x *[]float32, at, rows int) linalg.Matrix {
	square := buffer.Grow(x, int64(rows*rows))
	clear(square)
	for i := range rows {
		copy(square[i*rows:][:i+1], f.l.Data[(at+i)*f.l.Row+at:])
	}
	return linalg.Of(square, rows, rows)
}

// errorsOf sets errs to the errors of element at of all columns.
func (c *Columns) errorsOf(at int, errs, multiples []float32, format Format) {
	format.decode(errs, multiples[at*c.N:][:c.N], c.Scales[at/format.Block*c.N:])
	for j, w := range c.Weights[at*c.N:][:c.N] {
		errs[j] -= w
	}
}

// roundRow sets the codes of element at of all columns, which owe a correction, and their errors.
func (c *Columns) roundRow(at int, f Format, owed []float32, inverse float32, errs []float32) {
	n := c.N
	weights, codes := c.Weights[at*n:][:n], c.Codes[at*n:][:n]
	scales, zeros := c.Scales[at/f.Block*n:][:n], c.Zeros[at/f.Block*n:][:n]
	owed, errs = owed[:n], errs[:n]
	outer := f.step(1)
	for j, w := range weights {
		errs[j] = (w - float32(owed[j]*inverse)) / float32(scales[j]*outer)
	}
	f.nearest(errs, zeros)
	f.code(codes, errs, zeros)
	f.decode(errs, errs, scales)
	for j, w := range weights {
		errs[j] -= w
	}
}

// integers, if added and subtracted again, rounds a number to an integer, ties to even. Numbers too large
// for that stay larger than any code.
const integers = 3 << 22

// nearest is the integer nearest to x in a range.
func nearest(x, least, greatest float32) float32 {
	return min(max(float32(x)+integers-integers, least), greatest)
}
