package onnxq

import (
	"context"
	"fmt"

	"onnxquant/internal/modelfile"
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

// stays leaves a weight as it is.
func (w *QuantizedWeight) stays(reason string) RewrittenWeight {
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
	d := w.weight
	switch {
	case w.value != nil:
		return w.stays("its form is one of the standard's operators already"), 0
	case d.floatZero:
		return w.stays("its zero points are floats, which DequantizeLinear does not have"), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	turned := w.Transposed && (w.Bits != 2 || w.shape[0]%4 == 0)
	shape, axis := w.shape, d.axis
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
	return RewrittenWeight{QuantizedWeight: w, Became: name, NewForm: "DequantizeLinear", OutBytes: p.bytes}, need
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
var signedTypes = map[modelfile.DType]modelfile.DType{
	modelfile.Uint2: modelfile.Int2, modelfile.Uint4: modelfile.Int4, modelfile.Uint8: modelfile.Int8,
}

func (p *parts) codeType() modelfile.DType {
	if p.w.weight.middle {
		return signedTypes[p.w.weight.codeType]
	}
	return p.w.weight.codeType
}

func (p *parts) tensor(name string, dtype modelfile.DType, shape []int64) *onnxpb.TensorProto {
	t := p.r.tensor(p.b, name, dtype, shape)
	p.bytes += sizeOf(t)
	return t
}

// kept is a tensor that is good as it is.
func (p *parts) kept(v *value) string {
	p.bytes += sizeOf(v.tensor)
	return v.name
}

func (p *parts) codes(shape []int64) string {
	d := p.w.weight
	if d.grid == nil {
		return p.kept(d.codes)
	}
	t := p.tensor(p.w.Codes, p.codeType(), shape)
	middle := byte(0)
	if d.middle {
		middle = 1 << (d.grid.bits - 1)
	}
	p.r.fillCodes(t, d.grid, middle, p.turned)
	return t.GetName()
}

// blocked is the shape of what blocks of a shape have.
func (p *parts) blocked(shape []int64, axis int64) []int64 {
	shape = append([]int64{}, shape...)
	shape[axis] = divideUp(shape[axis], p.w.weight.block)
	return shape
}

func (p *parts) scale(shape []int64, axis int64) string {
	d := p.w.weight
	dims := d.scale.tensor.GetDims()
	if want := p.blocked(shape, axis); fmt.Sprint(dims) != fmt.Sprint(want) || p.turned {
		t := p.tensor(p.w.Scale, p.w.dtype, want)
		rows := p.w.size() / p.w.shape[len(p.w.shape)-1]
		p.r.fillFloats(t, d.s, rows, d.s.size()/rows, p.turned)
		return t.GetName()
	}
	return p.kept(d.scale)
}

func (p *parts) zero(shape []int64, axis int64) string {
	d := p.w.weight
	switch {
	case d.zero == nil:
		return ""
	case d.zeroGrid == nil:
		return p.kept(d.zero)
	}
	t := p.tensor(p.w.ZeroPoint, d.codeType, p.blocked(shape, axis))
	p.r.fillCodes(t, d.zeroGrid, 0, p.turned)
	return t.GetName()
}

// toNBits makes the operators that read a DequantizeLinear read its codes.
func (r *rebuild) toNBits(w *QuantizedWeight) (RewrittenWeight, int64) {
	if w.value == nil {
		return w.stays("its form is one of ONNX Runtime's own operators already"), 0
	}
	return w.stays("not yet"), 0
}
