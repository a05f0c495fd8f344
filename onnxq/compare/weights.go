package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/recognize"
	"onnxquant/spec"
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
	match := WeightMatch{Name: v.Path, Node: v.Reader(), DType: x.Values.DType.String(), Shape: append([]int64{}, x.Values.Shape...), Form: string(spec.Float), Bytes: x.Values.DType.Bytes(x.Values.Size())}
	match.OutBytes = match.Bytes
	e := &measurement{x: x.Values, y: y.Values, blocks: oneBlock(x.Values.Shape)}
	if transposed {
		e.y = &transposedReader{c: y.Values}
	}
	if quantized {
		if err := m.claim(v, w, x); err != nil {
			return err
		}
		m.checkTable(v, folded.Weight)
		if err := m.floats(v, x, folded, transposed); err != nil {
			return err
		}
		match.Form, match.CodeType, match.Block, match.OutBytes = folded.Form, folded.CodeType, blockSize(folded.Weight), folded.Bytes
		e.blocks, e.shifted = blocksOfWeight(x.Values.Shape, folded.Weight, transposed), isShifted(folded.Weight)
		if m.detail {
			var err error
			if e.survey, err = newSurvey(e.blocks, x.Values.Size(), m.readable[folded], transposed); err != nil {
				return err
			}
		}
	}
	err := m.measure(e)
	all := e.all
	if err == nil && m.half != 0 {
		all, err = m.unrounded(e)
	}
	match.MaxError, match.MSE, match.SQNR, match.Broken = all.MaxAbs, all.MSE(), max(min(all.SQNR(), errstat.Exact), -errstat.Exact), e.broken
	match.Gain, match.Largest = e.gain(), e.largest
	if err == nil && quantized {
		match.Bias, match.Nearest = m.bias(&match, w)
		err = m.codes(&match, e, v, folded.Weight)
	}
	if err == nil && e.survey != nil {
		if err = e.survey.read(m.ctx, &m.arena, x.Values); err == nil {
			match.Detail = e.survey.detail(e.all)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
	}
	m.result.Weights = append(m.result.Weights, match)
	if match.Detail != nil {
		if m.detailed = append(m.detailed, len(m.result.Weights)-1); len(m.detailed) == 2*MostDetails {
			m.thin()
		}
	}
	return nil
}

// unrounded returns the errors against the float32 elements of IN, if those of a measurement are rounded to half.
func (m *matcher) unrounded(e *measurement) (errstat.Stats, error) {
	rounded, ok := e.x.Stored.(*modelfile.Payload)
	if !ok || rounded.Made() == nil || rounded.Made().Round == nil {
		return e.all, nil
	}
	from := &measurement{x: lazy.Stored(dtype.Float32, e.x.Shape, rounded.Made().From), y: e.y, blocks: e.blocks}
	err := m.measure(from)
	return from.all, err
}

// codes completes the match of a weight, after its errors were measured, with blocks that share a
// scale and factors of channels.
func (m *matcher) codes(match *WeightMatch, e *measurement, v *graph.Value, coded *recognize.Weight) error {
	if e.lostSigns() {
		m.problem("%s: no decoded element is negative", msg.Quote(v.Path))
	}
	if misfit := e.misfit(); misfit > 1 && !powersOfTwo(coded) {
		rounded, err := m.rounded(e)
		if err != nil {
			return err
		}
		if !rounded {
			match.Misfit = misfit
		}
	}
	if e.all.SumSqErr > 0 && !powersOfTwo(coded) {
		match.Clipped = e.clipped / e.all.SumSqErr
	}
	var err error
	if match.Stray, err = m.stray(e); err != nil {
		return err
	}
	match.Worst = e.blockOf(e.worsts, 0)
	large := e
	if n := superblock(coded); n > 1 {
		large = &measurement{x: e.x, y: e.y, blocks: e.blocks}
		large.blocks.block *= min(n, e.blocks.length/e.blocks.block+1)
		match.Superblock = large.blocks.block
		if err := m.measure(large); err != nil {
			return err
		}
	}
	least := 0.01 * e.all.SumSq / float64(max(e.all.N, 1))
	match.WorstLarge, match.LeastAlike = large.blockOf(large.worsts, least), large.blockOf(large.unlike, least)
	match.WorstGain = large.blockOf(large.scaled, least)
	return m.factors(v, e.x, e.y, match.CodeType)
}

// blockSize returns the block size of a weight as in TensorPlan.
func blockSize(w *recognize.Weight) int64 {
	switch {
	case w.PerTensor:
		return spec.PerTensor
	case w.Block == 0:
		return spec.PerChannel
	}
	return w.Block
}

// unshaped follows a value back through nodes that only change the shape. Slice, Split and Concat name
// the parts of a stored tensor, not the nodes behind them.
func unshaped(x *graph.Graph, v *graph.Value) *graph.Value {
	for v.Tensor == nil && v.Node != nil && recognize.Reshapes(v.Node) && x.Source(v.Node, 0) != nil {
		v = x.Source(v.Node, 0)
	}
	return v
}

// claim records that quantized weight w is compared with v. It reports a problem if w is compared with
// two different weights, or has the name of another one.
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
			m.problem("%s is in the place of both %s and %s", msg.Quote(w.Path), msg.Quote(before.Path), msg.Quote(v.Path))
		}
	}
	if _, other := m.names[keyOfValue(v)]; other && key != keyOfValue(v) && m.stored[key] {
		m.problem("%s is in the place of %s", msg.Quote(w.Path), msg.Quote(v.Path))
	}
	return nil
}

// checkTable reports a table of code values that equals the table of a known format except for a
// few values: the table was probably damaged.
func (m *matcher) checkTable(v *graph.Value, w *recognize.Weight) {
	if w.Constant == nil || w.Constant.Decoder == nil {
		return
	}
	values := w.Constant.Decoder.Table
	var tried [][]float32
	for _, format := range spec.Formats() {
		known := form.Table(format)
		same := func(other []float32) bool { return slices.Equal(known, other) }
		if known == nil || len(values) != len(known) || slices.ContainsFunc(tried, same) {
			continue
		}
		tried = append(tried, known)
		others := 0
		for i, x := range known {
			if math.Abs(float64(values[i]-x)) > 1e-3*float64(slices.Max(known)) {
				others++
			}
		}
		if others > 0 && others <= len(known)/4 {
			m.problem("%s: its table equals that of %s except for %d values", msg.Quote(v.Path), format, others)
		}
	}
}
