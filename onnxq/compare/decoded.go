package compare

import (
	"context"
	"fmt"

	"onnxquant/internal/graph"
	"onnxquant/internal/intops"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/recognize"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
)

// Decoded is a model with float weights, and where they come from.
type Decoded struct {
	*onnxq.Model
	Folded *restyle.Report // of restyle.Dequantize; nil if the model had no quantized weights
	Coded  *onnxq.Model    // the model before; may be nil
}

// MatchDecoded is MatchWeights with more checks. If b.Coded is set, it also compares weights that b
// stores as floats in front of a QuantizeLinear. It compares them with the floats of a.Coded if that is
// set, else of a. With detail, it also sets WeightMatch.Detail.
func MatchDecoded(ctx context.Context, a, b Decoded, detail bool, progress func(done, total int64)) (*Match, error) {
	c := comparison{a: a, b: b, detail: detail, progress: progress}
	return c.run(ctx)
}

// readable finds the weights that were folded in the model that they were in, where they can be
// read. They come in the same order there.
func (d *Decoded) readable() map[*restyle.Weight]*recognize.Weight {
	if d.Coded == nil || d.Folded == nil {
		return nil
	}
	type key struct{ codes, scale string }
	left := map[key][]*recognize.Weight{}
	for _, w := range intops.Weights(d.Coded.Graph()) {
		if w.Constant != nil {
			k := key{w.Codes, w.Scale}
			left[k] = append(left[k], w)
		}
	}
	pairs := map[*restyle.Weight]*recognize.Weight{}
	for i, w := range d.Folded.Weights {
		k := key{w.Codes, w.Scale}
		if list := left[k]; len(list) > 0 {
			pairs[&d.Folded.Weights[i]], left[k] = list[0], list[1:]
		}
	}
	return pairs
}

// floatsOf returns the floats from which a QuantizeLinear makes the codes of a weight, or nil.
func floatsOf(w *recognize.Weight) *lazy.Tensor {
	if w == nil || w.Constant == nil || w.Constant.Decoder == nil {
		return nil
	}
	return w.Constant.Decoder.Floats
}

// floats compares the floats that the second model quantizes with the weight v, x, of the first.
// transposed says that they are its transpose.
func (m *matcher) floats(v *graph.Value, x *recognize.Constant, folded *restyle.Weight, transposed bool) error {
	made, want := floatsOf(m.readable[folded]), x.Values
	if was := m.was[keyOfValue(v)]; was != nil {
		want = floatsOf(was)
	}
	if made == nil || want == nil || made.Size() != want.Size() {
		return nil
	}
	switch { // one of them may be in half
	case made.DType.Bits() < want.DType.Bits():
		want = want.Cast(made.DType)
	case made.DType.Bits() > want.DType.Bits():
		made = made.Cast(want.DType)
	}
	var decoded elementReader = made
	if transposed {
		decoded = &transposedReader{c: made}
	}
	e := &measurement{x: want, y: decoded, blocks: oneBlock(want.Shape)}
	if err := m.measure(e); err != nil {
		return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
	}
	if e.all.SumSqErr > 0 || e.broken > 0 {
		m.problem("%s: the float values before quantization differ (SQNR %.1f dB)", msg.Quote(v.Path), e.all.SQNR())
	}
	return nil
}
