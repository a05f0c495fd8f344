package onnxq

import (
	"context"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// Restyle writes the model at in to out with its quantized weights in another
// style: DQ, the standard's DequantizeLinear, or NBits, the MatMulNBits and
// GatherBlockQuantized of ONNX Runtime. Codes, scales and zero points are moved,
// not computed: a weight decodes to the same values, bit for bit, or stays as it
// was, and the report says why. The input is never written to, and out appears
// whole or not at all.
func Restyle(ctx context.Context, in, out string, style Style, opts RewriteOptions) (*RewriteReport, error) {
	switch style {
	case DQ:
		return rewriteWeights(ctx, in, out, opts, (*rebuild).toDequantizeLinear)
	case NBits:
		return rewriteWeights(ctx, in, out, opts, (*rebuild).toNBits)
	}
	return nil, fmt.Errorf("style %q: want dq or nbits", style)
}

// stays leaves a weight as it is, for a reason or because that is what is wanted.
func stays(w *QuantizedWeight, reason string) RewrittenWeight {
	return RewrittenWeight{QuantizedWeight: w, NewForm: w.Form, OutBytes: w.Bytes, Reason: reason}
}

// toDequantizeLinear puts a DequantizeLinear in front of operators that decode a
// weight for themselves. Codes without zero points, whose middle stands for 0,
// become signed ones.
//
// A matrix that only products read is turned into [K, N]: ONNX Runtime fuses
// only that. It computes garbage from 2-bit codes whose N is no multiple of 4;
// those, like what a Gather reads too, stay [N, K], with a Transpose behind.
func (r *rebuild) toDequantizeLinear(w *QuantizedWeight) (RewrittenWeight, int64) {
	d := w.folded.weight
	switch {
	case w.value != nil:
		return stays(w, ""), 0 // in that style already
	case d.floatZero:
		return stays(w, "its zero points are floats, which DequantizeLinear does not have"), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	turned := w.Transposed && (w.Bits != 2 || w.folded.num.shape[0]%4 == 0)
	shape, axis := w.folded.num.shape, d.axis
	if turned {
		shape, axis = []int64{shape[1], shape[0]}, 0
	}
	p := parts{r: r, b: b, w: w, turned: turned}
	inputs := []string{p.codes(shape), p.scale(shape, axis)}
	if zero := p.zero(shape, axis); zero != "" {
		inputs = append(inputs, zero)
	}
	attrs := []*onnxpb.AttributeProto{intAttr("axis", axis), intAttr("block_size", d.block)}
	name := b.fresh(w.plainName())
	b.node(w.plainName(), "DequantizeLinear", name, inputs, attrs...)
	r.readValue(w, b, name, turned)
	need := max(21, typeOpsets[p.codeType()])
	return RewrittenWeight{QuantizedWeight: w, Became: name, NewForm: "DequantizeLinear", OutBytes: p.bytes, Changed: true}, need
}

// parts moves the parts of a weight of com.microsoft's operators to those of a
// DequantizeLinear.
type parts struct {
	r      *rebuild
	b      *builder
	w      *QuantizedWeight
	turned bool
	bytes  int64
}

// signedTypes are those of codes whose middle is taken off.
var signedTypes = map[dtype.DType]dtype.DType{
	dtype.Uint2: dtype.Int2, dtype.Uint4: dtype.Int4, dtype.Uint8: dtype.Int8,
}

func (p *parts) codeType() dtype.DType {
	if p.w.folded.weight.middle {
		return signedTypes[p.w.folded.weight.codeType]
	}
	return p.w.folded.weight.codeType
}

// suffixOf is what the name of codes ends with.
func suffixOf(t dtype.DType) string { return integerFormats[t].traits().suffix }

func (p *parts) tensor(name string, typ dtype.DType, shape []int64) *onnxpb.TensorProto {
	t := p.r.tensor(p.b, name, typ, shape)
	p.bytes += sizeOf(t)
	return t
}

// kept is a tensor that is good as it is.
func (p *parts) kept(v *value) string {
	p.bytes += sizeOf(v.tensor)
	return v.name
}

func (p *parts) codes(shape []int64) string {
	d := p.w.folded.weight
	if d.grid == nil {
		return p.kept(d.codes)
	}
	t := p.tensor(p.w.plainName()+suffixOf(p.codeType()), p.codeType(), shape)
	middle := byte(0)
	if d.middle {
		middle = 1 << (d.grid.bits - 1)
	}
	p.r.fillCodes(t, d.grid.matrix(), d.grid.bits, middle, p.turned, 0)
	return t.GetName()
}

// blocked is the shape of what blocks of a shape have.
func (p *parts) blocked(shape []int64, axis int64) []int64 {
	shape = append([]int64{}, shape...)
	shape[axis] = divideUp(shape[axis], p.w.folded.weight.block)
	return shape
}

func (p *parts) scale(shape []int64, axis int64) string {
	d := p.w.folded.weight
	want := p.blocked(shape, axis)
	if !p.turned && d.scale != nil && slices.Equal(d.scale.tensor.GetDims(), want) {
		return p.kept(d.scale)
	}
	t := p.tensor(p.w.plainName()+"_scale", p.w.folded.num.dtype, want)
	n, _ := dtype.Elements(want)
	switch s, ok := spreadBroadcast(want, d.s.shape); {
	case p.turned:
		p.r.fillFloats(t, d.s, want[1], want[0], true)
	case ok: // float8 may have fewer scales
		p.r.fillFloats(t, d.s.spreadOut(s, want), n, 1, false)
	default: // the same ones in another shape
		p.r.fillFloats(t, d.s, n, 1, false)
	}
	return t.GetName()
}

func (p *parts) zero(shape []int64, axis int64) string {
	d := p.w.folded.weight
	switch {
	case d.zero == nil:
		return ""
	case d.zeroGrid == nil:
		return p.kept(d.zero)
	}
	t := p.tensor(p.w.plainName()+"_zp", d.codeType, p.blocked(shape, axis))
	p.r.fillCodes(t, d.zeroGrid.matrix(), d.grid.bits, 0, p.turned, 0)
	return t.GetName()
}

// toNBits makes the operators that read a DequantizeLinear read its codes. Signed
// ones become unsigned, and so do their zero points; without any, what is in the
// middle of the codes stands for 0.
func (r *rebuild) toNBits(w *QuantizedWeight) (RewrittenWeight, int64) {
	d := w.folded.weight
	format, ok := integerFormats[d.codeType]
	switch {
	case w.value == nil:
		return stays(w, ""), 0 // in that style already
	case w.value.body != nil:
		return stays(w, "it is in a function"), 0
	case d.form != "DequantizeLinear" || w.nodes[0].GetOpType() != d.form:
		return stays(w, "MatMulNBits and GatherBlockQuantized do not decode so"), 0
	case !ok:
		return stays(w, fmt.Sprintf("MatMulNBits and GatherBlockQuantized have no %s", w.CodeType)), 0
	case d.x.stored == nil || d.whole != nil || d.s.dtype != w.folded.num.dtype:
		return stays(w, "its scales are of another type than its values"), 0
	case w.value.output:
		return stays(w, "it is an output of the graph"), 0
	case len(w.folded.num.shape) < 2 || w.folded.num.size() == 0:
		return stays(w, "MatMulNBits takes matrices"), 0
	}
	x := r.model.index
	c := choice{format: format, target: Portable, block: int(d.block), style: NBits, zeroPoint: !format.Signed()}
	made := &decision{value: w.value, dtype: w.folded.num.dtype, shape: w.folded.num.shape, reach: reachOf(x, w.value, w.folded.num.shape)}
	if len(made.reach.leaves) == 0 || made.reach.output {
		return stays(w, "no operator reads it, or the graph returns it"), 0
	}
	o, _, why := made.reach.leaves[0].operand(w.folded.num.shape)
	switch {
	case why != "":
		return stays(w, why), 0
	case d.block != 0:
		o.axis, o.view = int(d.axis), w.folded.num.shape
	case !d.perTensor && (o.axis == int(d.axis) || len(w.folded.num.shape) != 2):
		return stays(w, "its scales are along the axis that is summed over"), 0
	default:
		c.block = PerChannel
	}
	if d.z != nil {
		c.format = unsignedFormats[w.Bits]
	}
	c.operand = o
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
	r.consumers.gone[r.consumers.copies[w.nodes[0]]] = true
	r.consumers.readCodes(q, b)
	r.fillNBits(w, q, format.Signed())
	return RewrittenWeight{QuantizedWeight: w, Became: q.codes.GetName(), NewForm: made.choice.nbits.String(), OutBytes: q.size(), Changed: true}, 0
}

var integerFormats = map[dtype.DType]Format{
	dtype.Int2: Int2, dtype.Uint2: Uint2, dtype.Int4: Int4, dtype.Uint4: Uint4, dtype.Int8: Int8, dtype.Uint8: Uint8,
}

var unsignedFormats = map[int]Format{2: Uint2, 4: Uint4, 8: Uint8}

// fillNBits moves the parts of a weight to those of ONNX Runtime's operators.
func (r *rebuild) fillNBits(w *QuantizedWeight, q *weight, signed bool) {
	d := w.folded.weight
	for _, t := range q.written() {
		r.made[t] = true
	}
	middle := byte(0)
	if signed {
		middle = 1 << (w.Bits - 1)
	}
	// Codes are rows of whatever lies last, turned or not.
	turned, last := q.codesAt.turned, w.folded.num.shape[len(w.folded.num.shape)-1]
	codes := grid{d.x.stored, w.Bits, w.folded.num.size() / last, last, last}
	r.fillCodes(q.codes, codes.matrix(), w.Bits, middle, turned, q.codesAt.pitch)

	// Scales are the same, or one for each of the rows.
	rows, cols := q.outer*q.inner, q.blocks
	if d.block != 0 && turned {
		rows, cols = cols, rows
	}
	turned = turned && d.block != 0
	each := func(x *numbers) *numbers {
		if d.perTensor {
			return x.spreadOut(oneScale, []int64{rows})
		}
		return x
	}
	r.fillFloats(q.scale, each(d.s), rows, cols, turned)
	if q.zero != nil {
		zero := d.z
		if zero == nil { // of unsigned codes
			zero = constantNumber(0, d.codeType)
		}
		r.fillCodes(q.zero, each(zero).codeMatrix(rows, cols), w.Bits, middle, turned, q.zerosAt.pitch)
	}
}
