package restyle

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/shapes"
	"onnxquant/internal/target"
)

// unchanged leaves a weight unchanged. reason is "" if it already has the wanted style.
func unchanged(w *recognize.Weight, reason string) Weight {
	return Weight{Weight: w, NewForm: w.Form, OutBytes: w.Bytes, Reason: reason}
}

// toDequantizeLinear replaces the operators that decode a weight internally by a DequantizeLinear and
// float operators. Codes without zero points, where 2^(bits-1) represents 0, become signed.
//
// A matrix that only products read is transposed to [K, N], the only layout that ONNX Runtime fuses. A
// matrix that a Gather also reads stays [N, K] with a Transpose behind it. So does a matrix whose
// fused product ONNX Runtime would compute wrongly.
func (r *rebuild) toDequantizeLinear(w *recognize.Weight) (Weight, int64) {
	d := w.Constant.Decoder
	switch {
	case w.Value != nil:
		return unchanged(w, ""), 0 // it has the style already
	case d.Form == "MatMulBnb4":
		return unchanged(w, "its codes are positions in a table, which DequantizeLinear does not have"), 0
	case d.Mins != nil:
		return unchanged(w, "mins are subtracted from its product, which no DequantizeLinear before it can do in the same way"), 0
	case d.FloatZero:
		return unchanged(w, "its zero points are floats, which DequantizeLinear does not have"), 0
	}
	b := r.builder(w)
	r.replaced = append(r.replaced, w)
	x := r.copy.Original
	nested := x.Nested(x.Made(w.Nodes[0]))
	transposed := w.Transposed && !target.SpoiltIfFused(int(w.Bits), w.Constant.Values.Shape[0]) && !target.ZeroedIfFused(w.Constant.Values.DType, nested)
	shape, axis := w.Constant.Values.Shape, d.Axis
	if transposed {
		shape, axis = []int64{shape[1], shape[0]}, 0
	}
	p := parts{r: r, b: b, w: w, transposed: transposed}
	inputs := []string{p.codes(shape), p.scale(shape, axis)}
	if zero := p.zero(shape, axis); zero != "" {
		inputs = append(inputs, zero)
	}
	attrs := []*onnxpb.AttributeProto{form.IntAttr("axis", axis), form.IntAttr("block_size", d.Block)}
	name := b.Fresh(w.PlainName())
	b.Node(w.PlainName(), "DequantizeLinear", name, inputs, attrs...)
	r.readValue(w, b, name, transposed)
	need := max(21, p.codeType().Opset())
	return Weight{Weight: w, Became: name, NewForm: "DequantizeLinear", OutBytes: p.bytes, Changed: true}, need
}

// parts makes the inputs of a DequantizeLinear from the inputs of an operator of com.microsoft.
type parts struct {
	r          *rebuild
	b          *form.Builder
	w          *recognize.Weight
	transposed bool  // transpose the matrix
	bytes      int64 // size of all inputs so far
}

// signedTypes maps a type of codes to the type of the codes minus 2^(bits-1).
var signedTypes = map[dtype.DType]dtype.DType{
	dtype.Uint2: dtype.Int2, dtype.Uint4: dtype.Int4, dtype.Uint8: dtype.Int8,
}

func (p *parts) codeType() dtype.DType {
	if p.w.Constant.Decoder.Middle {
		return signedTypes[p.w.Constant.Decoder.CodeType]
	}
	return p.w.Constant.Decoder.CodeType
}

func (p *parts) tensor(name string, typ dtype.DType, shape []int64) *onnxpb.TensorProto {
	t := p.b.Tensor(name, typ, shape)
	p.bytes += graph.SizeOf(t)
	return t
}

// kept reuses a tensor of the input unchanged.
func (p *parts) kept(v *graph.Value) string {
	p.bytes += graph.SizeOf(v.Tensor)
	return v.Name
}

func (p *parts) codes(shape []int64) string {
	d := p.w.Constant.Decoder
	if d.Grid == nil {
		return p.kept(d.Codes)
	}
	t := p.tensor(p.w.PlainName()+form.Suffix(p.codeType()), p.codeType(), shape)
	middle := byte(0)
	if d.Middle {
		middle = 1 << (d.Grid.Bits - 1)
	}
	p.r.fillCodes(t, gridMatrix(d.Grid).less(middle), d.Grid.Bits, p.transposed, 0)
	return t.GetName()
}

// blocked is the shape of per-block values such as scales.
func (p *parts) blocked(shape []int64, axis int64) []int64 {
	shape = append([]int64{}, shape...)
	shape[axis] = shapes.DivideUp(shape[axis], p.w.Constant.Decoder.Block)
	return shape
}

func (p *parts) scale(shape []int64, axis int64) string {
	d := p.w.Constant.Decoder
	name := p.storedScale(p.blocked(shape, axis))
	small := smallScales(d)
	if small != "" {
		name = p.b.Value(name, "Cast", []string{name}, form.IntAttr("to", int64(dtype.Float32)))
	}
	if small.Stepped() {
		name = p.b.Value(name, "Mul", []string{name, p.kept(d.TensorScale)})
	}
	return name
}

func (p *parts) storedScale(want []int64) string {
	d := p.w.Constant.Decoder
	scales := storedScales(d)
	if !p.transposed && d.Scale != nil && slices.Equal(d.Scale.Tensor.GetDims(), want) && d.Scale.Tensor.GetDataType() == int32(scales.DType) {
		return p.kept(d.Scale)
	}
	t := p.tensor(p.w.PlainName()+"_scale", scales.DType, want)
	n, _ := dtype.Elements(want)
	switch s, ok := lazy.MapBroadcast(want, scales.Shape); {
	case p.transposed:
		p.r.fillScales(t, scales, want[1], want[0], true)
	case ok: // float8 may have fewer scales
		p.r.fillScales(t, scales.Spread(s, want), n, 1, false)
	default: // the same scales in another shape
		p.r.fillScales(t, scales, n, 1, false)
	}
	return t.GetName()
}

func (p *parts) zero(shape []int64, axis int64) string {
	d := p.w.Constant.Decoder
	switch {
	case d.Zero == nil:
		return ""
	case d.ZeroGrid == nil:
		return p.kept(d.Zero)
	}
	t := p.tensor(p.w.PlainName()+"_zp", d.CodeType, p.blocked(shape, axis))
	p.r.fillCodes(t, gridMatrix(d.ZeroGrid), d.Grid.Bits, p.transposed, 0)
	return t.GetName()
}
