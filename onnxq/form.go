package onnxq

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
	"onnxquant/onnxq/spec"
)

// builder collects the tensors and nodes that decode weights in one graph.
type builder struct {
	domain string // as the model spells that of the ONNX operators
	fresh  func(hint string) string

	tensors   []*onnxpb.TensorProto
	nodes     []*onnxpb.NodeProto
	constants map[string]string // names of constants by what they hold
}

// tensor adds an initializer whose content is written later.
func (b *builder) tensor(name string, dtype dtype.DType, shape []int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: new(b.fresh(name)), DataType: new(int32(dtype)), Dims: shape}
	b.tensors = append(b.tensors, t)
	return t
}

// constant returns the name of a small initializer, adding it if there is none
// like it yet.
func (b *builder) constant(name string, typ dtype.DType, shape []int64, raw []byte) string {
	key := fmt.Sprint(typ, shape) + string(raw)
	if have, ok := b.constants[key]; ok {
		return have
	}
	t := b.tensor(name, typ, shape)
	t.RawData = raw
	if b.constants == nil {
		b.constants = map[string]string{}
	}
	b.constants[key] = t.GetName()
	return t.GetName()
}

// shape returns the name of a constant that holds a shape.
func (b *builder) shape(prefix string, dims []int64) string {
	var raw []byte
	for _, n := range dims {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
	}
	return b.constant(prefix+"_shape", dtype.Int64, []int64{int64(len(dims))}, raw)
}

// node adds a node with one output. Its name begins with prefix.
func (b *builder) node(prefix, op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	b.nodes = append(b.nodes, b.loose(prefix, op, output, inputs, attrs...))
}

// loose makes a node without adding it.
func (b *builder) loose(prefix, op, output string, inputs []string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{
		OpType:    &op,
		Name:      new(b.fresh(prefix + "_" + op)),
		Input:     inputs,
		Output:    []string{output},
		Attribute: attrs,
	}
	if b.domain != "" {
		n.Domain = &b.domain
	}
	return n
}

// value adds a node and returns the new name of its output.
func (b *builder) value(prefix, op string, inputs []string, attrs ...*onnxpb.AttributeProto) string {
	output := b.fresh(prefix + "_" + op + "_Output")
	b.node(prefix, op, output, inputs, attrs...)
	return output
}

// result adds the node that makes the weight, and behind it a Cast and a Reshape
// where what it makes is of another type or shape.
func (b *builder) result(w *weight, made dtype.DType, op string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	type step struct {
		op     string
		inputs []string // behind the value of the step before
		attrs  []*onnxpb.AttributeProto
	}
	steps := []step{{op, inputs, attrs}}
	if made != w.d.dtype {
		steps = append(steps, step{"Cast", nil, []*onnxpb.AttributeProto{intAttr("to", int64(w.d.dtype))}})
	}
	if !slices.Equal(w.codeShape(), w.d.shape) {
		steps = append(steps, step{"Reshape", []string{b.shape(w.d.value.Name, w.d.shape)}, nil})
	}
	var value []string
	for i, s := range steps {
		in := append(value, s.inputs...)
		if i == len(steps)-1 {
			b.node(w.d.value.Name, s.op, cmp.Or(w.output, w.d.value.Name), in, s.attrs...)
		} else {
			value = []string{b.value(w.d.value.Name, s.op, in, s.attrs...)}
		}
	}
}

// constantNodes makes nodes of the tensors: a function has no initializers.
func (b *builder) constantNodes() (nodes []*onnxpb.NodeProto) {
	for _, t := range b.tensors {
		n := &onnxpb.NodeProto{OpType: new("Constant"), Output: []string{t.GetName()}, Attribute: []*onnxpb.AttributeProto{
			{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t},
		}}
		if b.domain != "" {
			n.Domain = &b.domain
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// typeOpsets holds the opsets from which DequantizeLinear or Cast take a type.
var typeOpsets = map[dtype.DType]int64{
	dtype.Float16:      19,
	dtype.BFloat16:     19,
	dtype.Float8E4M3FN: 19,
	dtype.Float8E5M2:   19,
	dtype.Int4:         21,
	dtype.Uint4:        21,
	dtype.Float4E2M1:   23,
	dtype.Float8E8M0:   24,
	dtype.Int2:         25,
	dtype.Uint2:        25,
}

// opset is the least one that has the types and attributes of the weight's form.
func (w *weight) opset() int64 {
	switch w.d.choice.style {
	case spec.NBits:
		return 0 // its operators are of another domain
	case spec.QDQ:
		return max(21, typeOpsets[w.codeType()]) // output_dtype of QuantizeLinear
	}
	need := max(13, typeOpsets[w.codeType()], typeOpsets[w.scaleType()], typeOpsets[w.d.dtype])
	if !w.perAxis {
		need = max(need, 21) // block_size
	}
	return need
}

// tabled tells whether codes are looked up in a table, because the target has no
// type for them. QLoRA's formats are in no standard.
func (w *weight) tabled() bool {
	return target.Of(w.d.choice.target).Tables(w.d.choice.format)
}

// formName names what decodes the weight, for the plan.
func (w *weight) formName() string {
	switch w.d.choice.style {
	case spec.NBits:
		return w.d.choice.nbits.String()
	case spec.QDQ:
		return "QuantizeLinear and DequantizeLinear"
	}
	switch {
	case w.tabled():
		return "Gather"
	case w.encoding != nil && w.encoding.Form.Mins:
		return "DequantizeLinear and Sub"
	}
	return "DequantizeLinear"
}

// codeType is the type of the tensor of codes.
func (w *weight) codeType() dtype.DType {
	if w.tabled() {
		return dtype.Uint4
	}
	return w.d.choice.format.Traits().Codes
}

// build adds what decodes the weight and gives the result its name.
func (w *weight) build(b *builder) {
	switch w.d.choice.style {
	case spec.NBits:
		b.tensors = append(b.tensors, w.decoder.tensors...)
		b.nodes = append(b.nodes, w.decoder.nodes...)
		return
	case spec.QDQ:
		w.buildFake(b)
		return
	}
	if w.encoding != nil {
		w.buildBlockwise(b)
		return
	}
	w.codes = b.tensor(w.d.value.Name+w.d.choice.format.Traits().Suffix, w.codeType(), w.codeShape())
	w.scale = b.tensor(w.d.value.Name+"_scale", w.scaleType(), w.scaleShape())
	if w.codec.HasZeroPoints() {
		w.zero = b.tensor(w.d.value.Name+"_zp", w.codeType(), w.scaleShape())
	}
	scale, scaleType := w.buildScale(b)
	if w.tabled() {
		w.buildLookup(b, scale, scaleType)
	} else {
		w.buildDequantize(b, scale, scaleType)
	}
}

// buildFake adds a QuantizeLinear behind the weight, which stays, and a
// DequantizeLinear behind that.
func (w *weight) buildFake(b *builder) {
	w.scale = b.tensor(w.d.value.Name+"_scale", w.scaleType(), w.scaleShape())
	inputs := []string{w.d.value.Name, w.scale.GetName()}
	if !slices.Equal(w.codeShape(), w.d.shape) {
		inputs[0] = b.value(w.d.value.Name, "Reshape", []string{w.d.value.Name, b.shape(w.d.value.Name+"_view", w.codeShape())})
	}
	attrs := w.blocking()
	if w.codec.HasZeroPoints() {
		w.zero = b.tensor(w.d.value.Name+"_zp", w.codeType(), w.scaleShape())
		inputs = append(inputs, w.zero.GetName())
	} else {
		attrs = append(attrs, intAttr("output_dtype", int64(w.codeType())))
	}
	codes := b.value(w.d.value.Name, "QuantizeLinear", inputs, attrs...)
	b.result(w, w.d.dtype, "DequantizeLinear", append([]string{codes}, inputs[1:]...), w.blocking()...)
}

// codeShape is the shape of the tensor of codes. Where axes count as one it is
// not the weight's, unless there is one scale for each index of the first axis.
func (w *weight) codeShape() []int64 {
	if w.perAxis && w.d.choice.Axis == 1 && w.view[0] == w.d.shape[0] {
		return w.d.shape
	}
	return w.view
}

// buildScale adds what makes the stored scales ready for use.
func (w *weight) buildScale(b *builder) (name string, typ dtype.DType) {
	stored := w.scale.GetName()
	switch t := w.scaleType(); {
	case t == dtype.Float8E4M3FN: // scaled themselves
		w.whole = b.tensor(w.d.value.Name+"_scale_2", dtype.Float32, nil)
		if w.tabled() { // runtimes compute constants once, but not all do so with DequantizeLinear
			plain := b.value(stored, "Cast", []string{stored}, intAttr("to", int64(dtype.Float32)))
			return b.value(stored, "Mul", []string{plain, w.whole.GetName()}), dtype.Float32
		}
		return b.value(stored, "DequantizeLinear", []string{stored, w.whole.GetName()}), dtype.Float32
	case !target.Of(w.d.choice.target).Has(t):
		return b.value(stored, "Cast", []string{stored}, intAttr("to", int64(dtype.Float32))), dtype.Float32
	default:
		return stored, t
	}
}

// buildDequantize adds a DequantizeLinear.
func (w *weight) buildDequantize(b *builder, scale string, scaleType dtype.DType) {
	inputs := []string{w.codes.GetName(), scale}
	if w.zero != nil {
		inputs = append(inputs, w.zero.GetName())
	}
	attrs := w.blocking()
	made := scaleType
	if want := w.plainType(); made != want && target.Of(w.d.choice.target).Has(w.scaleType()) {
		made = want
		attrs = append(attrs, intAttr("output_dtype", int64(made)))
	}
	b.result(w, made, "DequantizeLinear", inputs, attrs...)
}

// blocking says in attributes which elements share a scale.
func (w *weight) blocking() []*onnxpb.AttributeProto {
	switch {
	case !w.perAxis:
		return []*onnxpb.AttributeProto{intAttr("axis", int64(w.d.choice.Axis)), intAttr("block_size", w.block)}
	case len(w.view) == 2:
		return []*onnxpb.AttributeProto{intAttr("axis", int64(1-w.d.choice.Axis))}
	}
	return nil
}

// buildLookup adds two lookups, of each element's value in a table and of its
// block's scale, and their product:
//
//	codes ── Cast ── Gather(values) ──┐
//	scale ── Gather(blocks, axis) ── Mul ── w
func (w *weight) buildLookup(b *builder, scale string, scaleType dtype.DType) {
	if scaleType != dtype.Float32 {
		scale = b.value(scale, "Cast", []string{scale}, intAttr("to", int64(dtype.Float32)))
	}
	var values []byte
	for _, v := range w.table() {
		values = binary.LittleEndian.AppendUint32(values, math.Float32bits(v))
	}
	table := b.constant(string(w.d.choice.format)+"_values", dtype.Float32, []int64{int64(len(w.table()))}, values)
	codes := b.value(w.codes.GetName(), "Cast", []string{w.codes.GetName()}, intAttr("to", int64(dtype.Int32)))
	value := b.value(w.codes.GetName(), "Gather", []string{table, codes})
	if w.blocks > 1 { // a single one is spread by Mul itself
		scale = b.value(scale, "Gather", []string{scale, b.blockIndex(w.k, w.block)}, intAttr("axis", int64(w.d.choice.Axis)))
	}
	b.result(w, dtype.Float32, "Mul", []string{value, scale})
}

func intAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}
