package recognize

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// dequantizeLinear folds a DequantizeLinear of ONNX or com.microsoft.
func (f *Recognizer) dequantizeLinear(n *onnxpb.NodeProto) *Constant {
	x, scale := f.input(n, 0), f.input(n, 1).plain()
	var zero *Constant
	if graph.HasInput(n, 2) {
		if zero = f.input(n, 2); zero == nil {
			return nil
		}
	}
	if x == nil || scale == nil || !lazy.CodeType(x.Values.DType) || !scale.Values.DType.Float() && scale.Values.DType != dtype.Float8E8M0 {
		return nil
	}
	typ := scale.Values.DType
	if to := dtype.DType(graph.IntAttribute(n, "output_dtype")); to != 0 {
		typ = to
	}
	axis, block := graph.IntAttributeOr(n, "axis", 1), graph.IntAttribute(n, "block_size")
	s, ok := lazy.MapBlocks(x.Values.Shape, scale.Values.Shape, axis, block)
	if !ok || !typ.Float() || zero != nil && (zero.Values.Size() != scale.Values.Size() || zero.Values.DType != x.Values.DType) {
		return nil
	}
	d := &Decoder{
		Form: "DequantizeLinear", Codes: x.Source, Scale: scale.Source, TensorScale: scale.factor, Scales: scale.stored, Step: scale.step, CodeType: x.Values.DType,
		blocking: blocking{shapes.Axis(axis, len(x.Values.Shape)), block}, PerTensor: s.Single,
		X: x.Values, S: scale.Values, ScaleMap: s,
	}
	if x.Decoder != nil { // its codes come from QuantizeLinear
		d.Form, d.Floats = x.Decoder.Form+"+"+d.Form, x.Decoder.Floats
	}
	if scale.Decoder != nil {
		d.Scale, d.TensorScale, d.Scales, d.Step = scale.Decoder.Codes, scale.Decoder.Scale, nil, nil
	}
	if zero != nil {
		d.Z, d.Zero = zero.Values, zero.Source
	}
	return &Constant{Values: lazy.Dequantized(d.X, d.S, d.Z, s, typ), Source: x.Source, Decoder: d}
}

// quantizeLinear folds the first half of fake quantization: a QuantizeLinear of a float
// constant, whose codes a DequantizeLinear decodes.
func (f *Recognizer) quantizeLinear(n *onnxpb.NodeProto) *Constant {
	x, scale := f.input(n, 0), f.input(n, 1)
	if x == nil || scale == nil || x.Decoder != nil || !x.Values.DType.Float() || !scale.Values.DType.Float() {
		return nil
	}
	codes := dtype.Uint8
	if to := dtype.DType(graph.IntAttribute(n, "output_dtype")); to != 0 {
		codes = to
	}
	var z *lazy.Tensor
	if graph.HasInput(n, 2) {
		zero := f.input(n, 2)
		if zero == nil || zero.Values.Size() != scale.Values.Size() {
			return nil
		}
		z, codes = zero.Values, zero.Values.DType
	}
	saturate := graph.IntAttributeOr(n, "saturate", 1) != 0
	s, ok := lazy.MapBlocks(x.Values.Shape, scale.Values.Shape, graph.IntAttributeOr(n, "axis", 1), graph.IntAttribute(n, "block_size"))
	if !ok || !lazy.CodeType(codes) {
		return nil
	}
	made, ok := lazy.Quantized(x.Values, scale.Values, z, s, codes, saturate)
	if !ok {
		return nil
	}
	return &Constant{Values: made, Source: x.Source, Decoder: &Decoder{Form: "QuantizeLinear", Floats: x.Values}}
}
