package form

import (
	"cmp"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/internal/discover"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/packing"
	"onnxquant/internal/quantize"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// Weight is the form of a quantized weight. It is seen as [Outer, K, Inner]: blocks run
// along K.
type Weight struct {
	Name   string // name of the decoded value
	DType  dtype.DType
	Shape  []int64
	Choice discover.Choice

	Outer, K, Inner int64
	Block, Blocks   int64 // elements per block (K: one block for the axis); number of blocks along K
	PerAxis         bool  // per-channel scales: a vector, no block_size

	codec    quantize.Codec // nil for the blockwise formats
	encoding *ggml.Encoding // for the blockwise formats, else nil
}

// Tensors are the tensors of a quantized weight.
type Tensors = quantize.Parts[*onnxpb.TensorProto]

// New returns the form of a weight of the given type and shape, quantized as chosen.
func New(name string, typ dtype.DType, shape []int64, c discover.Choice) (*Weight, error) {
	view, axis := c.Operand.View, c.Operand.Axis
	if c.Style == spec.StyleDynamic {
		w := &Weight{Name: name, DType: typ, Shape: shape, Choice: c}
		w.setDynamic()
		return w, nil
	}
	if c.Style == spec.StyleStatic {
		w := &Weight{Name: name, DType: typ, Shape: shape, Choice: c}
		w.setStatic()
		return w, nil
	}
	if c.Apart {
		view = append(slices.Clone(view), 1)
		c.Operand.View = view
	}
	w := &Weight{
		Name: name, DType: typ, Shape: shape, Choice: c, encoding: c.Format.Encoding(),
		Outer: shapes.Count(view[:axis]), K: view[axis], Inner: shapes.Count(view[axis+1:]),
	}
	w.Block = int64(c.Block)
	if c.Block == spec.PerChannel {
		w.Block, w.PerAxis = w.K, len(view) <= 2 && !w.multiplied()
	}
	w.Blocks = (w.K-1)/w.Block + 1
	if len(view) == 1 && w.Blocks == 1 && !w.multiplied() && w.encoding == nil {
		w.PerAxis = true // ONNX Runtime treats a single scale as per-tensor
	}
	if w.encoding != nil {
		return w, nil
	}
	codec, err := w.newCodec()
	if err != nil {
		return nil, err
	}
	w.codec = codec
	return w, codec.Validate()
}

// Quantize describes the weight for package quantize, which reads the elements from src. importance
// may be nil.
func (w *Weight) Quantize(name string, src quantize.Source, importance []float32) *quantize.Weight {
	q := &quantize.Weight{
		Name: name, Source: src, DType: w.DType, Outer: w.Outer, K: w.K, Inner: w.Inner, Block: w.Block,
		Codec: w.codec, Encoding: w.encoding, Algorithm: w.Choice.Algorithm, Range: w.Choice.Range, Importance: importance,
		Bits: w.Choice.Format.Bits(), ScaleType: w.scaleType(), TwoLevel: w.family().nested,
		PositiveScales: w.Choice.Target.PositiveScales || w.scaleType() == dtype.Uint8,
		Offset:         w.Choice.Style == spec.NBits && w.Choice.Format.Signed(),
		FloatZeros:     w.Choice.NBits.FloatZeros,
	}
	if w.Choice.Style == spec.StyleStatic {
		q.Given = w.Choice.Static.Fill
	}
	if w.encoding != nil && w.Choice.Algorithm != spec.RTN && w.Choice.Algorithm != "" {
		q.Encoding = w.encoding.LeastError()
	}
	q.CodesAt, q.ScalesAt, q.ZerosAt = w.Placements()
	for _, d := range w.details() {
		q.Details = append(q.Details, quantize.Detail{Kind: d.kind, At: packing.InOrder(w.Outer, shapes.DivideUp(w.K, d.part), w.Inner), Part: d.part})
	}
	return q
}

// Placements returns the element order of codes, scales and zero points in their tensors.
func (w *Weight) Placements() (codes, scales, zeros packing.Placement) {
	if w.Choice.Style == spec.StyleDynamic {
		return w.dynamicPlacements()
	}
	codes, scales = packing.InOrder(w.Outer, w.K, w.Inner), packing.InOrder(w.Outer, w.Blocks, w.Inner)
	zeros = scales
	if w.Choice.Style != spec.NBits {
		return codes, scales, zeros
	}
	if w.Choice.NBits.Product {
		codes.Pitch = w.Blocks * w.Choice.NBits.Block
	}
	codes.HighFirst = w.bnb4()
	if w.Choice.NBits.Experts && w.Choice.NBits.Block == 0 {
		return codes, scales, zeros // zero points are packed across rows
	}
	per := int64(8 / w.Choice.Format.Bits())
	zeros.Pitch = shapes.DivideUp(w.Blocks, per) * per
	transposed := w.Inner > 1
	codes.Transposed, scales.Transposed, zeros.Transposed = transposed, transposed, transposed
	return codes, scales, zeros
}

// Elements is the number of elements.
func (w *Weight) Elements() int64 { return w.Outer * w.K * w.Inner }

// Encoded reports whether the format is blockwise, an encoding of package ggml.
func (w *Weight) Encoded() bool { return w.encoding != nil }

// view is the shape that axis refers to: the weight's shape, possibly with merged axes.
func (w *Weight) view() []int64 { return w.Choice.Operand.View }

// axis is the axis of view along which blocks run.
func (w *Weight) axis() int { return w.Choice.Operand.Axis }

// along is the view with n elements along the axis of the blocks. A vector of one element becomes a
// scalar.
func (w *Weight) along(n int64) []int64 {
	if len(w.view()) == 1 && n == 1 {
		return nil // ONNX Runtime treats a single scale as per-tensor
	}
	shape := slices.Clone(w.view())
	shape[w.axis()] = n
	return shape
}

// scaleShape is the shape of scales and zero points.
func (w *Weight) scaleShape() []int64 {
	if w.Choice.Folded {
		_, scales := w.foldedShapes()
		return scales
	}
	shape := slices.Clone(w.view())
	shape[w.axis()] = w.Blocks
	if w.PerAxis {
		shape = slices.Delete(shape, w.axis(), w.axis()+1)
	}
	return shape
}

// codeShape is the shape of the tensor of codes. With merged axes that is the view, unless each
// index of the first axis has one scale.
func (w *Weight) codeShape() []int64 {
	if w.Choice.Folded {
		codes, _ := w.foldedShapes()
		return codes
	}
	if w.PerAxis && w.axis() == 1 && w.view()[0] == w.Shape[0] {
		return w.Shape
	}
	return w.view()
}

// codeType is the type of the tensor of codes.
func (w *Weight) codeType() dtype.DType {
	if w.tabled() {
		return dtype.Uint4
	}
	return w.Choice.Format.Traits().Codes
}

// plainType is the type of scales in formats that prescribe none: the weight's type. ONNX has no
// float64 scales, so a float64 weight is decoded to float32, and a Cast follows.
func (w *Weight) plainType() dtype.DType {
	if w.DType == dtype.Float64 {
		return dtype.Float32
	}
	return w.DType
}

// scaleType is the type of the stored scales.
func (w *Weight) scaleType() dtype.DType {
	if scales := w.family().scales; scales != nil {
		return cmp.Or(scales(w), w.plainType())
	}
	return w.plainType()
}

// family says how weights of the format are stored.
func (w *Weight) family() family { return families[w.Choice.Format.Traits().Family] }

// tabled reports whether codes are looked up in a table of values, because ONNX or the target lacks
// their type.
func (w *Weight) tabled() bool {
	return w.Choice.Target.Tables(w.Choice.Format) && (w.Choice.Style != spec.NBits || !w.Choice.Format.FloatCodes())
}

// multiplied reports whether a Mul applies the scales.
func (w *Weight) multiplied() bool { return w.tabled() || w.Choice.Folded }

// bnb4 reports whether a MatMulBnb4 reads the codes.
func (w *Weight) bnb4() bool {
	return w.Choice.Style == spec.NBits && w.Choice.Format.Traits().Family == spec.Lookup
}

// Opset is the least opset that has the types and attributes of the form.
func (w *Weight) Opset() int64 {
	switch w.Choice.Style {
	case spec.NBits:
		if w.Choice.Mins {
			return 13 // ReduceSum
		}
		if t := w.scaleType(); t != w.plainType() && w.Choice.Format.FloatCodes() { // a Cast of the scales
			return max(t.Opset(), w.codeType().Opset())
		}
		if w.Choice.ScaleType.Smaller() {
			return 7 // Mul
		}
		return 0 // the operators are in another domain
	case spec.StyleDynamic:
		return 11 // DynamicQuantizeLinear
	case spec.StyleStatic:
		return w.staticOpset()
	case spec.QDQ:
		return max(21, w.codeType().Opset()) // output_dtype of QuantizeLinear
	}
	need := max(13, w.codeType().Opset(), w.scaleType().Opset(), w.DType.Opset())
	if w.Choice.Folded {
		if w.codeType().Bits() == 8 && w.codeType().Integer() {
			return 9 // with its IR version, initializers need not be inputs
		}
		return need
	}
	if !w.PerAxis {
		need = max(need, 21) // block_size
	}
	return need
}

// String names the operators that decode the weight.
func (w *Weight) String() string {
	switch {
	case w.Choice.Style == spec.NBits:
		return w.Choice.NBits.String()
	case w.Choice.Style == spec.StyleDynamic:
		return w.Choice.Dynamic.Kind.String()
	case w.Choice.Style == spec.QDQ:
		return "QuantizeLinear and DequantizeLinear"
	case w.tabled():
		return "Gather"
	case w.Choice.Folded:
		return "Cast and Mul"
	case w.encoding != nil && w.encoding.Form.Mins, w.Choice.Mins:
		return "DequantizeLinear and Sub"
	}
	return "DequantizeLinear"
}

// newCodec returns the codec of the weight's format.
func (w *Weight) newCodec() (quantize.Codec, error) {
	if codec := w.family().codec; codec != nil {
		if c, ok := codec(w); ok {
			return c, nil
		}
	}
	return nil, fmt.Errorf("the format %q has no codec for the rule %q", w.Choice.Format, w.Choice.Rule)
}

// hasZeroPoints reports whether each block has a zero point.
func (w *Weight) hasZeroPoints() bool { return w.codec != nil && w.codec.HasZeroPoints() }
