package form

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// building adds the tensors and nodes of one weight to a Builder.
type building struct {
	*Builder
	w       *Weight
	output  string // name of the decoded weight
	tensors Tensors
}

// Build adds the tensors of the quantized weight and the nodes that decode it. The decoded
// weight keeps its name.
func (w *Weight) Build(b *Builder) Tensors {
	d := &building{Builder: b, w: w, output: w.Name}
	switch {
	case w.encoding != nil:
		d.blockwise()
	default:
		d.plain()
	}
	return d.tensors
}

// BuildFake adds a QuantizeLinear of the float weight, which stays in the model, and a
// DequantizeLinear with the given output.
func (w *Weight) BuildFake(b *Builder, output string) Tensors {
	d := &building{Builder: b, w: w, output: output}
	d.fake()
	return d.tensors
}

// plain adds codes, scales and zero points with a DequantizeLinear, or with a Gather for
// formats that look up codes in a table.
func (b *building) plain() {
	w := b.w
	b.tensors.Codes = b.Tensor(w.Name+w.Choice.Format.Traits().Suffix, w.codeType(), w.codeShape())
	b.tensors.Scales = b.Tensor(w.Name+"_scale", w.scaleType(), w.scaleShape())
	if w.hasZeroPoints() {
		b.tensors.Zeros = b.Tensor(w.Name+"_zp", w.codeType(), w.scaleShape())
	}
	if w.Choice.Mins {
		b.tensors.Mins = b.Tensor(w.Name+"_min", dtype.Float32, w.minShape())
	}
	scale, scaleType := b.scale()
	switch {
	case w.tabled():
		b.lookup(scale, scaleType)
	case w.Choice.Folded:
		b.folded(scale, scaleType)
	default:
		b.dequantize(scale, scaleType)
	}
}

// fake adds a QuantizeLinear and a DequantizeLinear.
func (b *building) fake() {
	w := b.w
	b.tensors.Scales = b.Tensor(w.Name+"_scale", w.scaleType(), w.scaleShape())
	inputs := []string{w.Name, b.tensors.Scales.GetName()}
	if !slices.Equal(w.codeShape(), w.Shape) {
		inputs[0] = b.Value(w.Name, "Reshape", []string{w.Name, b.Shape(w.Name+"_view", w.codeShape())})
	}
	attrs := w.blocking()
	if w.hasZeroPoints() {
		b.tensors.Zeros = b.Tensor(w.Name+"_zp", w.codeType(), w.scaleShape())
		inputs = append(inputs, b.tensors.Zeros.GetName())
	} else {
		attrs = append(attrs, IntAttr("output_dtype", int64(w.codeType())))
	}
	codes := b.Value(w.Name, "QuantizeLinear", inputs, attrs...)
	b.result(w.DType, "DequantizeLinear", append([]string{codes}, inputs[1:]...), w.blocking()...)
}

// scale adds the nodes that decode the scales, if any are needed. It returns the name of the
// scales.
func (b *building) scale() (name string, typ dtype.DType) {
	w := b.w
	stored := b.tensors.Scales.GetName()
	switch t := w.scaleType(); {
	case t == dtype.Float8E4M3FN: // the scales have a scale
		b.tensors.TensorScale = b.Tensor(w.Name+"_scale_2", dtype.Float32, nil)
		if w.tabled() || w.Choice.Style == spec.NBits { // constant folding of Mul works in all runtimes, of DequantizeLinear only in some
			plain := b.Value(stored, "Cast", []string{stored}, IntAttr("to", int64(dtype.Float32)))
			return b.Value(stored, "Mul", []string{plain, b.tensors.TensorScale.GetName()}), dtype.Float32
		}
		return b.Value(stored, "DequantizeLinear", []string{stored, b.tensors.TensorScale.GetName()}), dtype.Float32
	case w.Choice.ScaleType.Stepped(): // likewise, but ONNX Runtime fuses only with scales that it can fold
		b.tensors.TensorScale = b.Tensor(w.Name+"_scale_2", dtype.Float32, nil)
		plain := b.Value(stored, "Cast", []string{stored}, IntAttr("to", int64(dtype.Float32)))
		return b.Value(stored, "Mul", []string{plain, b.tensors.TensorScale.GetName()}), dtype.Float32
	case !w.Choice.Target.Has(t), w.Choice.ScaleType.Smaller(), t == dtype.Float8E8M0 && w.Choice.Style == spec.NBits: // ONNX Runtime fails with output_dtype instead of a Cast
		return b.Value(stored, "Cast", []string{stored}, IntAttr("to", int64(dtype.Float32))), dtype.Float32
	default:
		return stored, t
	}
}

// dequantize adds a DequantizeLinear with the given scales.
func (b *building) dequantize(scale string, scaleType dtype.DType) {
	w := b.w
	inputs := []string{b.tensors.Codes.GetName(), scale}
	switch {
	case b.tensors.Zeros != nil:
		inputs = append(inputs, b.tensors.Zeros.GetName())
	case w.Choice.StoredZeros:
		n := shapes.Count(w.scaleShape())
		inputs = append(inputs, b.Constant(fmt.Sprintf("zeros_%d", n), w.codeType(), w.scaleShape(), make([]byte, n)))
	}
	attrs := w.blocking()
	made := scaleType
	if want := w.plainType(); made != want && w.Choice.Target.Has(w.scaleType()) {
		made = want
		attrs = append(attrs, IntAttr("output_dtype", int64(made)))
	}
	b.result(made, "DequantizeLinear", inputs, attrs...)
}

// blocking returns the attributes that say which elements share a scale.
func (w *Weight) blocking() []*onnxpb.AttributeProto {
	switch {
	case !w.PerAxis:
		return []*onnxpb.AttributeProto{IntAttr("axis", int64(w.axis())), IntAttr("block_size", w.Block)}
	case len(w.view()) == 2:
		return []*onnxpb.AttributeProto{IntAttr("axis", int64(1-w.axis()))}
	}
	return nil
}

// lookup adds a lookup of each code's value, a lookup of each element's scale, and their product:
//
//	codes ── Cast ── Gather(values) ──┐
//	scale ── Gather(blocks, axis) ── Mul ── w
func (b *building) lookup(scale string, scaleType dtype.DType) {
	w := b.w
	if scaleType != dtype.Float32 {
		scale = b.Value(scale, "Cast", []string{scale}, IntAttr("to", int64(dtype.Float32)))
	}
	var values []byte
	for _, v := range Table(w.Choice.Format) {
		values = binary.LittleEndian.AppendUint32(values, math.Float32bits(v))
	}
	table := b.Constant(string(w.Choice.Format)+"_values", dtype.Float32, []int64{int64(len(Table(w.Choice.Format)))}, values)
	codes := b.Value(b.tensors.Codes.GetName(), "Cast", []string{b.tensors.Codes.GetName()}, IntAttr("to", int64(dtype.Int32)))
	value := b.Value(b.tensors.Codes.GetName(), "Gather", []string{table, codes})
	if w.Blocks > 1 { // Mul broadcasts a single scale
		scale = b.Value(scale, "Gather", []string{scale, b.blockIndex(w.K, w.Block)}, IntAttr("axis", int64(w.axis())))
	}
	b.result(dtype.Float32, "Mul", []string{value, scale})
}

// result adds the last node, whose output has type made. A Cast and a Reshape follow if the weight
// has another type or shape.
func (b *building) result(made dtype.DType, op string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	w := b.w
	if b.tensors.Mins != nil {
		value := b.Value(w.Name, op, inputs, attrs...)
		op, inputs, attrs = "Sub", []string{value, b.spreadMins()}, nil
	}
	type step struct {
		op     string
		inputs []string // after the output of the previous step
		attrs  []*onnxpb.AttributeProto
	}
	steps := []step{{op, inputs, attrs}}
	if made != w.DType {
		steps = append(steps, step{"Cast", nil, []*onnxpb.AttributeProto{IntAttr("to", int64(w.DType))}})
	}
	if !slices.Equal(w.codeShape(), w.Shape) {
		steps = append(steps, step{"Reshape", []string{b.Shape(w.Name, w.Shape)}, nil})
	}
	var value []string
	for i, s := range steps {
		in := append(value, s.inputs...)
		if i == len(steps)-1 {
			b.Node(w.Name, s.op, b.output, in, s.attrs...)
		} else {
			value = []string{b.Value(w.Name, s.op, in, s.attrs...)}
		}
	}
}
