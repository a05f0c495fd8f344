package compare

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/spec"
)

// keyOfValue is the name of a value as in restyle.Weight.Became. In functions it includes the
// path, because several may have a value of this name.
func keyOfValue(v *graph.Value) string {
	if v.Body != nil {
		return v.Path
	}
	return v.Name
}

// weights compares a weight with its decoded value.
func (m *matcher) weights(v, w *graph.Value, x, y *recognize.Constant, transposed bool) error {
	v, w = cmp.Or(x.Source, unshaped(m.a.Graph, v)), cmp.Or(y.Source, unshaped(m.b.Graph, w))
	folded, quantized := m.names[keyOfValue(w)]
	same := !transposed && x.Values.Stored != nil && y.Values.Stored != nil
	if same {
		var err error
		if same, err = m.equal(x, y); err != nil {
			return err
		}
	}
	if same && !quantized {
		m.result.Same++
		if m.half != 0 && m.rounds(v.Path) {
			m.result.Rounded++
		}
		return nil
	}
	match := WeightMatch{Name: v.Path, DType: x.Values.DType.String(), Shape: append([]int64{}, x.Values.Shape...), Form: string(spec.Float), Bytes: x.Values.DType.Bytes(x.Values.Size())}
	match.OutBytes = match.Bytes
	blocks := oneBlock(x.Values.Shape)
	if quantized {
		if err := m.claim(v, w, x); err != nil {
			return err
		}
		m.table(v, folded.Weight)
		if err := m.floats(v, x, folded, transposed); err != nil {
			return err
		}
		match.Form, match.CodeType, match.Block, match.OutBytes = folded.Form, folded.CodeType, blockSize(folded.Weight), folded.Bytes
		blocks = blocksOfWeight(x.Values.Shape, folded.Weight, transposed)
	}
	e := &measurement{blocks: blocks, shifted: quantized && isShifted(folded.Weight)}
	if m.detail && quantized {
		var err error
		if e.survey, err = newSurvey(blocks, x.Values.Size(), m.readable[folded], transposed); err != nil {
			return err
		}
	}
	var decoded elementReader = y.Values
	if transposed {
		decoded = &transposedReader{c: y.Values}
	}
	if err := m.measure(e, x.Values, decoded); err != nil {
		return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
	}
	match.MaxError, match.MSE, match.SQNR, match.Broken = e.all.MaxAbs, e.all.MSE(), max(min(e.all.SQNR(), errstat.Exact), -errstat.Exact), e.broken
	if quantized {
		if e.lostSigns() {
			m.problem("%s: no decoded element is negative", msg.Quote(v.Path))
		}
		if !powersOfTwo(folded.Weight) {
			match.Misfit = e.misfit()
		}
		match.Worst = e.worst(0)
		large := e
		if n := superblock(folded.Weight); n > 1 {
			large = &measurement{blocks: blocks}
			large.blocks.block *= min(n, blocks.length/blocks.block+1)
			if err := m.measure(large, x.Values, decoded); err != nil {
				return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
			}
		}
		match.WorstLarge = large.worst(0.01 * e.all.SumSq / float64(max(e.all.N, 1)))
		if err := m.factors(v, x.Values, decoded, match.CodeType); err != nil {
			return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
		}
	}
	if e.survey != nil {
		if err := e.survey.read(m.ctx, x.Values); err != nil {
			return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
		}
		match.Detail = e.survey.detail(e.all)
	}
	m.result.Weights = append(m.result.Weights, match)
	return nil
}

// blockSize returns the block size of a weight as TensorPlan has it.
func blockSize(w *recognize.Weight) int64 {
	switch {
	case w.PerTensor:
		return spec.PerTensor
	case w.Block == 0:
		return spec.PerChannel
	}
	return w.Block
}

// unshaped follows a value back through nodes that change the shape alone: a part of a stored
// tensor is known by the name that Slice, Split or Concat gives it.
func unshaped(x *graph.Graph, v *graph.Value) *graph.Value {
	for v.Tensor == nil && v.Node != nil && recognize.Reshapes(v.Node) && x.Source(v.Node, 0) != nil {
		v = x.Source(v.Node, 0)
	}
	return v
}

// claim records that quantized weight w is compared with v. It reports a problem if w is another
// weight: one that stands for something else too, or has the name of another weight.
func (m *matcher) claim(v, w *graph.Value, x *recognize.Constant) error {
	key := keyOfValue(w)
	m.compared[key] = true
	switch before := m.claimed[w]; {
	case before == nil:
		m.claimed[w] = v
	case before != v:
		y := m.a.Fold(before)
		same := x.Values.Stored != nil && y != nil && y.Values.Stored != nil
		if same {
			var err error
			if same, err = m.equal(x, y); err != nil {
				return err
			}
		}
		if !same {
			m.problem("%s stands for %s and %s", msg.Quote(w.Path), msg.Quote(before.Path), msg.Quote(v.Path))
		}
	}
	if _, other := m.names[keyOfValue(v)]; other && key != keyOfValue(v) && m.stored[key] {
		m.problem("%s stands for %s", msg.Quote(w.Path), msg.Quote(v.Path))
	}
	return nil
}

// table reports a table of what codes stand for that is, apart from a few values, the one of a
// format.
func (m *matcher) table(v *graph.Value, w *recognize.Weight) {
	if w.Constant == nil || w.Constant.Decoder == nil {
		return
	}
	values := w.Constant.Decoder.Table
	for _, format := range []spec.Format{spec.NF4, spec.FP4, spec.NVFP4, "iq4_nl"} {
		known := form.Table(format)
		if len(values) != len(known) {
			continue
		}
		others := 0
		for i, x := range known {
			if math.Abs(float64(values[i]-x)) > 1e-3*float64(slices.Max(known)) {
				others++
			}
		}
		if others > 0 && others <= len(known)/4 {
			m.problem("%s: its table is that of %s with %d other values", msg.Quote(v.Path), format, others)
		}
	}
}

// indexOf converts an element's position to its index in each axis.
func indexOf(shape []int64, i int64) []int64 {
	at := make([]int64, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		at[k] = i % max(shape[k], 1)
		i /= max(shape[k], 1)
	}
	return at
}

// cutting sees a tensor as [outer, length, inner], cut into blocks along the middle axis.
type cutting struct {
	length, inner, block int64

	shape []int64 // of the tensor, as the codes have it
	axis  int     // of shape, that blocks run along, or whose indices have a scale each; -1: neither
}

func oneBlock(shape []int64) cutting {
	n := max(shapes.Count(shape), 1)
	return cutting{length: n, inner: 1, block: n, shape: append([]int64{}, shape...), axis: -1}
}

// mostOpen bounds the number of blocks side by side, whose errors are summed at the same time.
// A tensor with more counts as one block.
const mostOpen = 1 << 20

// blocksOfWeight returns the blocks that share a scale. If each index of an inner axis has a
// scale, blocks are the contiguous parts of what shares it.
func blocksOfWeight(shape []int64, w *recognize.Weight, transposed bool) cutting {
	axis := w.Axis
	if w.Transposed != transposed {
		if axis >= len(shape)-2 {
			axis = 2*len(shape) - 3 - axis
		}
	} else if codes := shapeOfCodes(w); !w.Transposed && shapes.Count(codes) == shapes.Count(shape) {
		shape = codes // its elements are in the same order
	}
	if w.PerTensor || axis < 0 || axis >= len(shape) || shapes.Count(shape) == 0 {
		return oneBlock(shape)
	}
	inner := shapes.Count(shape[axis+1:])
	if inner > mostOpen {
		return oneBlock(shape)
	}
	c := cutting{length: inner, inner: 1, block: inner, shape: shape, axis: axis}
	switch {
	case w.Block > 0:
		c.length, c.inner, c.block = shape[axis], inner, min(w.Block, shape[axis])
	case axis == len(shape)-1:
		c.length, c.inner = shapes.Count(shape[:axis]), shape[axis]
		c.block = c.length
	}
	return c
}

// shapeOfCodes returns the shape that a weight is decoded in. Reshape may give it another one.
func shapeOfCodes(w *recognize.Weight) []int64 {
	if w.Constant == nil || w.Constant.Decoder == nil || w.Constant.Decoder.X == nil {
		return w.Shape
	}
	return w.Constant.Decoder.X.Shape
}

// measurement has the errors of a weight and of its worst block.
type measurement struct {
	blocks  cutting
	shifted bool // blocks have offsets, too
	all     errstat.Stats
	fitted  float64 // sum of squared errors, if each block had the scale that fits best
	broken  int64   // see WeightMatch.Broken
	worsts  map[int]worst
	survey  *survey // nil without a Detail

	negative bool // a decoded element is negative
	below    int  // blocks with negative elements
	lost     int  // those with one larger than a decoded element, which rounding does not make positive
}

// worst is the block with the lowest SQNR of those whose mean square has the same exponent.
type worst struct {
	errstat.Stats
	at int64 // position of its first element
}

// compareWorst keeps a block with errors if it is a worst one.
func (e *measurement) compareWorst(b errstat.Stats, at int64) {
	if b.SumSqErr == 0 {
		return
	}
	_, exponent := math.Frexp(b.SumSq / float64(b.N))
	if known, there := e.worsts[exponent]; !there || b.SQNR() < known.SQNR() {
		if e.worsts == nil {
			e.worsts = map[int]worst{}
		}
		e.worsts[exponent] = worst{b, at}
	}
}

// worst returns the first block with the lowest SQNR of those whose mean square is at least so much,
// apart from a factor of 2; or nil.
func (e *measurement) worst(least float64) *BlockMatch {
	var found *worst
	for _, b := range e.worsts {
		if b.SumSq >= least*float64(b.N) && (found == nil || cmp.Or(cmp.Compare(b.SQNR(), found.SQNR()), cmp.Compare(b.at, found.at)) < 0) {
			found = &b
		}
	}
	if found == nil {
		return nil
	}
	shape := e.blocks.shape
	return &BlockMatch{Shape: shape, At: indexOf(shape, found.at), Axis: e.blocks.axis, Length: found.N, MaxError: found.MaxAbs, MSE: found.MSE(), SQNR: max(found.SQNR(), -errstat.Exact)}
}

// block has the errors of a block.
type block struct {
	errstat.Stats
	product, square float64 // sums of w·v and v²
	w, v            float64 // sums
	below           float64 // largest of -w
	least           float64 // least of v that is positive; 0: none
}

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

// isShifted reports whether a weight has zero points or mins, or should have: its codes are
// unsigned.
func isShifted(w *recognize.Weight) bool {
	return strings.HasPrefix(w.CodeType, "UINT") || w.Constant != nil && w.Constant.Decoder != nil && w.Constant.Decoder.Zero != nil
}

// powersOfTwo reports whether the scales of a weight are powers of two, which fit by chance.
func powersOfTwo(w *recognize.Weight) bool {
	if w.Constant == nil || w.Constant.Decoder == nil || w.Constant.Decoder.Scale == nil {
		return false
	}
	return dtype.DType(w.Constant.Decoder.Scale.Tensor.GetDataType()) == dtype.Float8E8M0
}

// superblock returns the number of blocks whose scales share a scale, 1 if it is none or all of
// them. Scales of a few bits lose small blocks.
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

// misfit tells by how much, in dB, the error would be less if each block had the scale that fits
// best.
func (e *measurement) misfit() float64 {
	if e.all.SumSqErr == 0 {
		return 0
	}
	return min(errstat.Exact, 10*math.Log10(e.all.SumSqErr/max(e.fitted, 1e-99)))
}

// elementReader reads a constant in row-major order.
type elementReader interface {
	ReadAll(a *lazy.Arena, dst []float32, off int64) error
}

// stretch is the number of elements that are read at once.
const stretch = 1 << 14

// measure adds up the errors of y against x.
func (m *matcher) measure(e *measurement, x *lazy.Tensor, y elementReader) error {
	a := &lazy.Arena{}
	p, q := make([]float32, stretch), make([]float32, stretch)
	open := make([]block, e.blocks.inner)
	for off := int64(0); off < x.Size(); {
		rest := e.blocks.length - off/e.blocks.inner%e.blocks.length
		end := off + min(e.blocks.block, rest)*e.blocks.inner
		for at := off; at < end; at += stretch {
			if m.ctx.Err() != nil {
				return context.Cause(m.ctx)
			}
			n := min(stretch, end-at)
			if err := x.ReadAll(a, p[:n], at); err != nil {
				return err
			}
			if err := y.ReadAll(a, q[:n], at); err != nil {
				return err
			}
			e.add(open, p[:n], q[:n], at)
		}
		for i := range open {
			b := open[i].Stats
			e.all.Merge(b)
			if e.survey != nil {
				e.survey.block(b, off+int64(i))
			}
			e.fitted += open[i].fitted(e.shifted)
			if below, least := open[i].below, open[i].least; below > 0 {
				e.below++
				if least > 0 && below > least {
					e.lost++
				}
			}
			e.compareWorst(b, off+int64(i))
			open[i] = block{}
		}
		m.count(x.DType.Bytes(end - off))
		off = end
	}
	return nil
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
		b.below = max(b.below, -x)
		if v[i] > 0 && (b.least == 0 || float64(v[i]) < b.least) {
			b.least = float64(v[i])
		}
		e.negative = e.negative || v[i] < 0
	}
}

// lostSigns reports whether all negative elements became 0 or positive, though not because they are
// small: codes without a sign were taken for those with one.
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
