package compare

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/lazy"
	"onnxquant/internal/recognize"
	"onnxquant/internal/shapes"
)

// measurement has the errors of a weight and of its worst block.
type measurement struct {
	x       *lazy.Tensor  // the weight
	y       elementReader // the decoded weight
	blocks  cutting
	shifted bool // blocks have offsets too
	all     errstat.Stats
	product float64 // sum of w·v
	capped  float64 // sum of squared errors, where a block counts at most as if its codes were zero
	fitted  float64 // the same, if each block had the scale that fits best
	largest float64 // of |w|
	broken  int64   // see WeightMatch.Broken
	worsts  lowest  // blocks by SQNR
	unlike  lowest  // blocks by cosine
	scaled  lowest  // blocks that are like the weight, by how far their gain is from 1
	survey  *survey // nil without a Detail

	clipped  float64 // sum of squared errors of elements beyond the range of their block
	suspects suspects

	negative bool // a decoded element is negative
	below    int  // blocks with negative elements
	lost     int  // those of below whose lost signs are not due to rounding
}

// lowest has the block with the lowest score for each exponent of the mean square.
type lowest map[int]ranked

type ranked struct {
	block  *block
	number float64
	at     int64 // position of its first element
}

// compare returns which block is lower, the first one of equal ones.
func (r ranked) compare(other ranked) int {
	return cmp.Or(cmp.Compare(r.number, other.number), cmp.Compare(r.at, other.at))
}

// rank keeps a block if it is a lowest one.
func (l *lowest) rank(b *block, number float64, at int64) {
	_, exponent := math.Frexp(b.SumSq / float64(b.N))
	r := ranked{b, number, at}
	if known, there := (*l)[exponent]; there && r.compare(known) >= 0 {
		return
	}
	if *l == nil {
		*l = lowest{}
	}
	r.block = new(*b)
	(*l)[exponent] = r
}

// rank keeps a block that has errors, if it is a lowest one.
func (e *measurement) rank(b *block, at int64) {
	if b.SumSqErr > 0 {
		e.worsts.rank(b, b.SQNR(), at)
		e.unlike.rank(b, b.cosine(), at)
		if b.N >= shortBlock && b.cosine() >= alike {
			e.scaled.rank(b, -math.Abs(math.Log(b.gain())), at)
		}
	}
}

// blockOf returns the first lowest block among the blocks with at least this mean square, to within a
// factor of 2; or nil.
func (e *measurement) blockOf(l lowest, least float64) *BlockMatch {
	var found *ranked
	for _, r := range l {
		if r.block.SumSq >= least*float64(r.block.N) && (found == nil || r.compare(*found) < 0) {
			found = &r
		}
	}
	if found == nil {
		return nil
	}
	b, shape := found.block, e.blocks.shape
	return &BlockMatch{
		Shape: shape, At: indexOf(shape, found.at), Axis: e.blocks.axis, Length: b.N,
		MaxError: b.MaxAbs, MSE: b.MSE(), SQNR: max(b.SQNR(), -errstat.Exact), Cosine: b.cosine(), Gain: b.gain(),
	}
}

// block has the errors of a block.
type block struct {
	errstat.Stats
	product, square float64 // sums of w·v and v²
	w, v            float64 // sums
	below           float64 // largest of -w
	largest         float64 // of |w|
	least           float64 // least positive element of v; 0: none
	ends            ends
}

// cosine is the cosine between w and v; -1, the least alike, if v is zero.
func (b *block) cosine() float64 {
	switch {
	case b.square == 0:
		return -1
	case b.SumSq == 0:
		return 0
	}
	return b.product / math.Sqrt(b.SumSq*b.square)
}

// gain is how large v is along w, 1 if w is zero.
func (b *block) gain() float64 {
	if b.SumSq == 0 {
		return 1
	}
	return b.product / b.SumSq
}

// alike is the cosine above which a block has the right codes, so that only its scale may be wrong.
const alike = 0.95

// shortBlock is the length below which any scale may fit a block by chance.
const shortBlock = 8

// fitted returns the sum of squared errors with the best scale and, if shifted, the best offset.
func (b *block) fitted(shifted bool) float64 {
	product, square, rest := b.product, b.square, b.SumSq
	if n := float64(b.N); shifted && n > 0 {
		product, square, rest = product-b.w*b.v/n, square-b.v*b.v/n, rest-b.w*b.w/n
	}
	if b.N < shortBlock || square <= 0 {
		return b.SumSqErr
	}
	return min(b.SumSqErr, max(0, rest-product*product/square))
}

// isShifted reports whether a weight has zero points or mins, or needs them: its codes are unsigned
// and not indices of a table.
func isShifted(w *recognize.Weight) bool {
	if w.Constant == nil || w.Constant.Decoder == nil {
		return strings.HasPrefix(w.CodeType, "UINT")
	}
	d := w.Constant.Decoder
	return d.Zero != nil || d.Table == nil && strings.HasPrefix(w.CodeType, "UINT")
}

// powersOfTwo reports whether the scales of a weight are powers of two, which fit by chance.
func powersOfTwo(w *recognize.Weight) bool {
	if w.Constant == nil || w.Constant.Decoder == nil || w.Constant.Decoder.Scale == nil {
		return false
	}
	return dtype.DType(w.Constant.Decoder.Scale.Tensor.GetDataType()) == dtype.Float8E8M0
}

// superblock returns the number of blocks whose scales share a scale; 1 if scales are not scaled, or
// all share one. Scales of a few bits lose small blocks.
func superblock(w *recognize.Weight) int64 {
	if w.Constant == nil || w.Constant.Decoder == nil || w.Constant.Decoder.TensorScale == nil || w.Constant.Decoder.Scale == nil {
		return 1
	}
	d := w.Constant.Decoder
	above := shapes.Count(d.TensorScale.Tensor.GetDims())
	if above <= 1 {
		return 1
	}
	return shapes.DivideUp(shapes.Count(d.Scale.Tensor.GetDims()), above)
}

// gain returns how large the result is, along the weight.
func (e *measurement) gain() float64 {
	if e.all.SumSq == 0 {
		return 1
	}
	return e.product / e.all.SumSq
}

// misfit returns by how many dB the error would shrink if each block had its best scale. The error of
// a block counts at most as if its codes were zero.
func (e *measurement) misfit() float64 {
	if e.capped == 0 {
		return 0
	}
	return min(errstat.Exact, 10*math.Log10(e.capped/max(e.fitted, 1e-99)))
}

// elementReader reads a constant in row-major order.
type elementReader interface {
	ReadAll(a *lazy.Arena, dst []float32, off int64) error
}

// stretch is the number of elements that are read at once.
const stretch = 1 << 14

// measure adds up the errors of y against x.
func (m *matcher) measure(e *measurement) error {
	open := make([]block, e.blocks.inner)
	return m.walk(e, func(w, v []float32, at int64) { e.add(open, w, v, at) }, func(off, end int64) {
		for i := range open {
			e.close(&open[i], off+int64(i))
			open[i] = block{}
		}
		m.count(e.x.DType.Bytes(end - off))
	})
}

// walk reads x and y in order. add takes elements w and their decoded values v, from element at on.
// closed is called after the blocks of the elements off to end.
func (m *matcher) walk(e *measurement, add func(w, v []float32, at int64), closed func(off, end int64)) error {
	p, releaseP := m.arena.Float32s(stretch)
	q, releaseQ := m.arena.Float32s(stretch)
	defer releaseP()
	defer releaseQ()
	for off := int64(0); off < e.x.Size(); {
		rest := e.blocks.length - off/e.blocks.inner%e.blocks.length
		end := off + min(e.blocks.block, rest)*e.blocks.inner
		for at := off; at < end; at += stretch {
			if m.ctx.Err() != nil {
				return context.Cause(m.ctx)
			}
			n := min(stretch, end-at)
			if err := e.x.ReadAll(&m.arena, p[:n], at); err != nil {
				return err
			}
			if err := e.y.ReadAll(&m.arena, q[:n], at); err != nil {
				return err
			}
			add(p[:n], q[:n], at)
		}
		closed(off, end)
		off = end
	}
	return nil
}

// close adds a block, whose first element is at, to the errors of the weight.
func (e *measurement) close(b *block, at int64) {
	e.all.Merge(b.Stats)
	if e.survey != nil {
		e.survey.block(b.Stats, at)
	}
	e.product += b.product
	e.capped += min(b.SumSqErr, b.SumSq)
	e.fitted += min(b.fitted(e.shifted), b.SumSq)
	e.largest = max(e.largest, b.largest)
	e.clipped += b.ends.top.squares + b.ends.bottom.squares
	e.suspects.add(b, at)
	if b.below > 0 {
		e.below++
		if b.least > 0 && b.below > b.least {
			e.lost++
		}
	}
	e.rank(b, at)
}

// add adds the errors of elements v against w, which begin at element at.
func (e *measurement) add(open []block, w, v []float32, at int64) {
	k := int(at % e.blocks.inner)
	for i := range w {
		b := &open[k]
		if k++; k == len(open) {
			k = 0
		}
		x, err := float64(w[i]), float64(v[i])-float64(w[i])
		if math.IsNaN(err) || math.IsInf(err, 0) {
			if w[i] != v[i] && (w[i] == w[i] || v[i] == v[i]) {
				e.broken++
			}
			continue
		}
		b.N++
		b.MaxAbs = max(b.MaxAbs, math.Abs(err))
		b.SumSqErr += err * err
		b.SumSq += x * x
		b.product += x * float64(v[i])
		b.square += float64(v[i]) * float64(v[i])
		b.w += x
		b.v += float64(v[i])
		b.ends.add(x, float64(v[i]))
		b.below = max(b.below, -x)
		b.largest = max(b.largest, math.Abs(x))
		if v[i] > 0 && (b.least == 0 || float64(v[i]) < b.least) {
			b.least = float64(v[i])
		}
		e.negative = e.negative || v[i] < 0
	}
}

// lostSigns reports whether all negative elements became 0 or positive, and not because they are small:
// unsigned codes took the place of signed ones.
func (e *measurement) lostSigns() bool { return !e.negative && e.lost > 0 && 2*e.lost >= e.below }

// transposedReader reads a tensor with the last two axes swapped, a few rows of a matrix at a time.
type transposedReader struct {
	c           *lazy.Tensor
	first, rows int64 // rows in tile, counted over all matrices
	tile, line  []float32
}

func (r *transposedReader) ReadAll(a *lazy.Arena, dst []float32, off int64) error {
	rank := len(r.c.Shape)
	cols, all := r.c.Shape[rank-2], r.c.Shape[rank-1]
	for len(dst) > 0 {
		row := off / cols
		if row < r.first || row >= r.first+r.rows {
			matrix := row / all * all * cols
			r.first, r.rows = row, min(max(1<<20/cols, 1), 64, all-row%all)
			r.tile = slices.Grow(r.tile[:0], int(r.rows*cols))[:r.rows*cols]
			r.line = slices.Grow(r.line[:0], int(r.rows))[:r.rows]
			for c := range cols {
				if err := r.c.ReadAll(a, r.line, matrix+c*all+row%all); err != nil {
					return err
				}
				for k, v := range r.line {
					r.tile[int64(k)*cols+c] = v
				}
			}
		}
		n := copy(dst, r.tile[off-r.first*cols:])
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}
