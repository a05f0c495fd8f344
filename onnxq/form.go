package onnxq

import (
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// builder collects the tensors and nodes that decode weights in one graph.
type builder struct {
	domain string // as the model spells that of the ONNX operators
	fresh  func(hint string) string

	tensors []*onnxpb.TensorProto
	nodes   []*onnxpb.NodeProto
}

// tensor adds an initializer whose content is written later.
func (b *builder) tensor(name string, dtype modelfile.DType, shape []int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: ptr(b.fresh(name)), DataType: ptr(int32(dtype)), Dims: shape}
	b.tensors = append(b.tensors, t)
	return t
}

// node adds a node with one output. Its name begins with that of the weight.
func (b *builder) node(weight, op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	n := &onnxpb.NodeProto{
		OpType:    &op,
		Name:      ptr(b.fresh(weight + "_" + op)),
		Input:     inputs,
		Output:    []string{output},
		Attribute: attrs,
	}
	if b.domain != "" {
		n.Domain = &b.domain
	}
	b.nodes = append(b.nodes, n)
}

// opset is the least one that has the operators and types of the weight's form.
func (w *weight) opset() int64 {
	switch {
	case w.bits() == 2:
		return 25
	case w.bits() == 4 || !w.perAxis:
		return 21
	case w.dtype == modelfile.Float16 || w.dtype == modelfile.BFloat16:
		return 19
	}
	return 13
}

// build adds what decodes the weight and gives the result its name.
func (w *weight) build(b *builder) {
	code := codeTypes[w.choice.format]
	w.codes = b.tensor(w.name+code.suffix, code.dtype, w.shape)
	w.scale = b.tensor(w.name+"_scale", scaleTypes[w.dtype].onnx, w.scaleShape())
	inputs := []string{w.codes.GetName(), w.scale.GetName()}
	if w.codec.HasZeroPoints() {
		w.zero = b.tensor(w.name+"_zp", code.dtype, w.scaleShape())
		inputs = append(inputs, w.zero.GetName())
	}
	output := w.name
	if w.dtype == modelfile.Float64 {
		output = b.fresh(w.name + "_DequantizeLinear_Output")
	}
	b.node(w.name, "DequantizeLinear", output, inputs, w.blocking()...)
	if output != w.name {
		b.node(w.name, "Cast", w.name, []string{output}, intAttr("to", int64(w.dtype)))
	}
}

// blocking says in attributes which elements share a scale.
func (w *weight) blocking() []*onnxpb.AttributeProto {
	switch {
	case !w.perAxis:
		return []*onnxpb.AttributeProto{intAttr("axis", int64(w.choice.axis)), intAttr("block_size", w.block)}
	case len(w.shape) == 2:
		return []*onnxpb.AttributeProto{intAttr("axis", int64(1-w.choice.axis))}
	}
	return nil
}

func intAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}

func ptr[T any](v T) *T { return &v }
