package onnxq

import (
	"context"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/spec"
)

// Restyle writes the model at in to out with its quantized weights in another
// style: DQ, the standard's DequantizeLinear, or NBits, the MatMulNBits and
// GatherBlockQuantized of ONNX Runtime. Codes, scales and zero points are moved,
// not computed: a weight decodes to the same values, bit for bit, or stays as it
// was, and the report says why. The input is never written to, and out appears
// whole or not at all.
func Restyle(ctx context.Context, in, out string, style spec.Style, opts RewriteOptions) (*RewriteReport, error) {
	switch style {
	case spec.DQ:
		return rewriteWeights(ctx, in, out, opts, (*rebuild).toDequantizeLinear)
	case spec.NBits:
		return rewriteWeights(ctx, in, out, opts, (*rebuild).toNBits)
	}
	return nil, fmt.Errorf("style %q: want dq or nbits", style)
}

// stays leaves a weight as it is, for a reason or because that is what is wanted.
func stays(w *recognize.Weight, reason string) RewrittenWeight {
	return RewrittenWeight{Weight: w, NewForm: w.Form, OutBytes: w.Bytes, Reason: reason}
}

// toDequantizeLinear puts a DequantizeLinear in front of operators that decode a
// weight for themselves. Codes without zero points, whose middle stands for 0,
// become signed ones.
//
// A matrix that only products read is turned into [K, N]: ONNX Runtime fuses
// only that. It computes garbage from 2-bit codes whose N is no multiple of 4;
// those, like what a Gather reads too, stay [N, K], with a Transpose behind.
func (r *rebuild) toDequantizeLinear(w *recognize.Weight) (RewrittenWeight, int64) {
	d := w.Folded.Weight
	switch {
	case w.Value != nil:
		return stays(w, ""), 0 // in that style already
	case d.FloatZero:
		return stays(w, "its zero points are floats, which DequantizeLinear does not have"), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	turned := w.Transposed && (w.Bits != 2 || w.Folded.Num.Shape[0]%4 == 0)
	shape, axis := w.Folded.Num.Shape, d.Axis
	if turned {
		shape, axis = []int64{shape[1], shape[0]}, 0
	}
	p := parts{r: r, b: b, w: w, turned: turned}
	inputs := []string{p.codes(shape), p.scale(shape, axis)}
	if zero := p.zero(shape, axis); zero != "" {
		inputs = append(inputs, zero)
	}
	attrs := []*onnxpb.AttributeProto{intAttr("axis", axis), intAttr("block_size", d.Block)}
	name := b.fresh(w.PlainName())
	b.node(w.PlainName(), "DequantizeLinear", name, inputs, attrs...)
	r.readValue(w, b, name, turned)
	need := max(21, typeOpsets[p.codeType()])
	return RewrittenWeight{Weight: w, Became: name, NewForm: "DequantizeLinear", OutBytes: p.bytes, Changed: true}, need
}

// parts moves the parts of a weight of com.microsoft's operators to those of a
// DequantizeLinear.
type parts struct {
	r      *rebuild
	b      *builder
	w      *recognize.Weight
	turned bool
	bytes  int64
}

// signedTypes are those of codes whose middle is taken off.
var signedTypes = map[dtype.DType]dtype.DType{
	dtype.Uint2: dtype.Int2, dtype.Uint4: dtype.Int4, dtype.Uint8: dtype.Int8,
}

func (p *parts) codeType() dtype.DType {
	if p.w.Folded.Weight.Middle {
		return signedTypes[p.w.Folded.Weight.CodeType]
	}
	return p.w.Folded.Weight.CodeType
}

// suffixOf is what the name of codes ends with.
func suffixOf(t dtype.DType) string { return integerFormats[t].Traits().Suffix }

func (p *parts) tensor(name string, typ dtype.DType, shape []int64) *onnxpb.TensorProto {
	t := p.r.tensor(p.b, name, typ, shape)
	p.bytes += graph.SizeOf(t)
	return t
}

// kept is a tensor that is good as it is.
func (p *parts) kept(v *graph.Value) string {
	p.bytes += graph.SizeOf(v.Tensor)
	return v.Name
}

func (p *parts) codes(shape []int64) string {
	d := p.w.Folded.Weight
	if d.Grid == nil {
		return p.kept(d.Codes)
	}
	t := p.tensor(p.w.PlainName()+suffixOf(p.codeType()), p.codeType(), shape)
	middle := byte(0)
	if d.Middle {
		middle = 1 << (d.Grid.Bits - 1)
	}
	p.r.fillCodes(t, gridMatrix(d.Grid), d.Grid.Bits, middle, p.turned, 0)
	return t.GetName()
}

// blocked is the shape of what blocks of a shape have.
func (p *parts) blocked(shape []int64, axis int64) []int64 {
	shape = append([]int64{}, shape...)
	shape[axis] = shapes.DivideUp(shape[axis], p.w.Folded.Weight.Block)
	return shape
}

func (p *parts) scale(shape []int64, axis int64) string {
	d := p.w.Folded.Weight
	want := p.blocked(shape, axis)
	if !p.turned && d.Scale != nil && slices.Equal(d.Scale.Tensor.GetDims(), want) {
		return p.kept(d.Scale)
	}
	t := p.tensor(p.w.PlainName()+"_scale", p.w.Folded.Num.DType, want)
	n, _ := dtype.Elements(want)
	switch s, ok := lazy.MapBroadcast(want, d.S.Shape); {
	case p.turned:
		p.r.fillFloats(t, d.S, want[1], want[0], true)
	case ok: // float8 may have fewer scales
		p.r.fillFloats(t, d.S.Spread(s, want), n, 1, false)
	default: // the same ones in another shape
		p.r.fillFloats(t, d.S, n, 1, false)
	}
	return t.GetName()
}

func (p *parts) zero(shape []int64, axis int64) string {
	d := p.w.Folded.Weight
	switch {
	case d.Zero == nil:
		return ""
	case d.ZeroGrid == nil:
		return p.kept(d.Zero)
	}
	t := p.tensor(p.w.PlainName()+"_zp", d.CodeType, p.blocked(shape, axis))
	p.r.fillCodes(t, gridMatrix(d.ZeroGrid), d.Grid.Bits, 0, p.turned, 0)
	return t.GetName()
}

// toNBits makes the operators that read a DequantizeLinear read its codes. Signed
// ones become unsigned, and so do their zero points; without any, what is in the
// middle of the codes stands for 0.
func (r *rebuild) toNBits(w *recognize.Weight) (RewrittenWeight, int64) {
	d := w.Folded.Weight
	format, ok := integerFormats[d.CodeType]
	switch {
	case w.Value == nil:
		return stays(w, ""), 0 // in that style already
	case w.Value.Body != nil:
		return stays(w, "it is in a function"), 0
	case d.Form != "DequantizeLinear" || w.Nodes[0].GetOpType() != d.Form:
		return stays(w, "MatMulNBits and GatherBlockQuantized do not decode so"), 0
	case !ok:
		return stays(w, fmt.Sprintf("MatMulNBits and GatherBlockQuantized have no %s", w.CodeType)), 0
	case d.X.Stored == nil || d.Whole != nil || d.S.DType != w.Folded.Num.DType:
		return stays(w, "its scales are of another type than its values"), 0
	case w.Value.Output:
		return stays(w, "it is an output of the graph"), 0
	case len(w.Folded.Num.Shape) < 2 || w.Folded.Num.Size() == 0:
		return stays(w, "MatMulNBits takes matrices"), 0
	}
	x := r.model.index
	c := choice{format: format, target: spec.Portable, block: int(d.Block), style: spec.NBits, zeroPoint: !format.Signed()}
	made := &decision{value: w.Value, dtype: w.Folded.Num.DType, shape: w.Folded.Num.Shape, reach: reach.Of(x, w.Value, w.Folded.Num.Shape)}
	if len(made.reach.Leaves) == 0 || made.reach.Output {
		return stays(w, "no operator reads it, or the graph returns it"), 0
	}
	o, _, why := made.reach.Leaves[0].Operand(w.Folded.Num.Shape)
	switch {
	case why != "":
		return stays(w, why), 0
	case d.Block != 0:
		o.Axis, o.View = int(d.Axis), w.Folded.Num.Shape
	case !d.PerTensor && (o.Axis == int(d.Axis) || len(w.Folded.Num.Shape) != 2):
		return stays(w, "its scales are along the axis that is summed over"), 0
	default:
		c.block = spec.PerChannel
	}
	if d.Z != nil {
		c.format = unsignedFormats[w.Bits]
	}
	c.Operand = o
	made.choice = c
	if made.choice.nbits, why = made.nbitsForm(x); why != "" {
		return stays(w, why), 0
	}
	q, err := newWeight(made, nil)
	if err != nil {
		return stays(w, err.Error()), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	r.consumers.gone[r.consumers.copies[w.Nodes[0]]] = true
	r.consumers.readCodes(q, b)
	r.fillNBits(w, q, format.Signed())
	return RewrittenWeight{Weight: w, Became: q.codes.GetName(), NewForm: made.choice.nbits.String(), OutBytes: q.size(), Changed: true}, 0
}

var integerFormats = map[dtype.DType]spec.Format{
	dtype.Int2: spec.Int2, dtype.Uint2: spec.Uint2, dtype.Int4: spec.Int4, dtype.Uint4: spec.Uint4, dtype.Int8: spec.Int8, dtype.Uint8: spec.Uint8,
}

var unsignedFormats = map[int]spec.Format{2: spec.Uint2, 4: spec.Uint4, 8: spec.Uint8}

// fillNBits moves the parts of a weight to those of ONNX Runtime's operators.
func (r *rebuild) fillNBits(w *recognize.Weight, q *weight, signed bool) {
	d := w.Folded.Weight
	for _, t := range q.written() {
		r.made[t] = true
	}
	middle := byte(0)
	if signed {
		middle = 1 << (w.Bits - 1)
	}
	// Codes are rows of whatever lies last, turned or not.
	turned, last := q.codesAt.turned, w.Folded.Num.Shape[len(w.Folded.Num.Shape)-1]
	codes := lazy.Grid{Stored: d.X.Stored, Bits: w.Bits, Rows: w.Folded.Num.Size() / last, Cols: last, Pitch: last}
	r.fillCodes(q.codes, gridMatrix(&codes), w.Bits, middle, turned, q.codesAt.pitch)

	// Scales are the same, or one for each of the rows.
	rows, cols := q.outer*q.inner, q.blocks
	if d.Block != 0 && turned {
		rows, cols = cols, rows
	}
	turned = turned && d.Block != 0
	each := func(x *lazy.Tensor) *lazy.Tensor {
		if d.PerTensor {
			return x.Spread(lazy.OneScale, []int64{rows})
		}
		return x
	}
	r.fillFloats(q.scale, each(d.S), rows, cols, turned)
	if q.zero != nil {
		zero := d.Z
		if zero == nil { // of unsigned codes
			zero = lazy.Constant(0, d.CodeType)
		}
		r.fillCodes(q.zero, matrixOf(each(zero), rows, cols), w.Bits, middle, turned, q.zerosAt.pitch)
	}
}
