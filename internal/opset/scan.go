package opset

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// scanBatch adapts Scan, which lost its batch axis at opset 9. Scan-8 ran once for each
// entry along axis 0 of all its inputs, the batch. Each run went along axis 1 of the scan
// inputs, the sequence, and the results were stacked. That is a Scan in a Scan:
//
//	Scan(states…, inputs…) {        along axis 0: the batch
//	    Scan(states…, inputs…) {…}  along axis 0 of an entry: the sequence
//	}
//
// The optional first input had the length of each entry's sequence. With it, the inputs of the inner
// Scan are cut to this length. Its results are padded to the full length with their last element; the
// value of the padding was undefined.
func scanBatch(e *edit) error {
	body := e.attribute("body").GetG()
	scanned, err := e.intAttribute("num_scan_inputs", 0)
	if err != nil {
		return err
	}
	states := len(body.GetInput()) - int(scanned)
	if scanned < 1 || states < 0 || len(e.node.Input) != 1+len(body.GetInput()) ||
		len(e.node.Output) == 0 || len(e.node.Output) != len(body.GetOutput()) {
		return errors.New("its inputs and outputs do not match its body")
	}

	batch := &onnxpb.GraphProto{Name: proto.String(body.GetName() + "_batch")}
	inner := newNode("Scan", nil, e.freshAll(body.GetOutput()), e.node.Attribute...)
	b := &edit{scope: e.model.scope(batch, e.scope), node: inner}
	if a := b.take("directions"); a != nil {
		b.set(&onnxpb.AttributeProto{Name: proto.String("scan_input_directions"), Type: a.Type, Ints: a.Ints, RefAttrName: a.RefAttrName})
	}
	inner.Input = e.freshAll(body.Input)
	batch.Input = valuesLike(body.Input, inner.Input)
	results := slices.Clone(inner.Output)

	entries := slices.Clone(e.node.Input[1:])
	if lengths := e.input(0); lengths != "" {
		length := e.model.fresh("length")
		batch.Input = append(batch.Input, &onnxpb.ValueInfoProto{Name: &length, Type: tensorType(onnxpb.TensorProto_INT64)})
		entries = append(entries, lengths)
		b.shorten(inner.Input[states:], results[states:], length)
	}
	batch.Output = valuesLike(body.Output, results)
	b.owned[inner] = true
	b.scope.nodes = slices.Concat(b.before, []*onnxpb.NodeProto{inner}, b.after)

	e.node.Input = entries
	e.node.Attribute = []*onnxpb.AttributeProto{graphAttribute("body", batch), intAttribute("num_scan_inputs", int64(len(entries)))}
	return nil
}

// shorten cuts the inputs of the edited node to a length, and pads its results to the full length of
// the inputs. It replaces the names in inputs and results by the names of the new values.
func (e *edit) shorten(inputs, results []string, length string) {
	first := e.intVector("first", 0)
	full := e.produce("Gather", []string{e.produce("Shape", []string{inputs[0]}), first}, intAttribute("axis", 0))
	short := e.count(e.produce("Unsqueeze", []string{length}, intsAttribute("axes", 0)))
	for i, x := range inputs {
		inputs[i] = e.produce("Gather", []string{x, short}, intAttribute("axis", 0))
	}
	index := e.count(full)
	last := e.produce("Sub", []string{length, e.int("one", 1)})
	padded := e.produce("Where", []string{e.produce("Less", []string{index, length}), index, last})
	for i, y := range results {
		n := e.newNode("Gather", []string{y, padded}, []*onnxpb.AttributeProto{intAttribute("axis", 0)})
		e.after = append(e.after, n)
		results[i] = n.Output[0]
	}
}

// count returns the vector 0, 1, … n-1. n is a vector of one element.
func (e *edit) count(n string) string {
	ones := e.produce("ConstantOfShape", []string{n}, tensorAttribute("value", int64Tensor([]int64{1}, 1)))
	return e.produce("Squeeze", []string{e.produce("NonZero", []string{ones})}, intsAttribute("axes", 0))
}

// freshAll returns new names for values.
func (e *edit) freshAll(values []*onnxpb.ValueInfoProto) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = e.model.fresh(v.GetName() + "_entry")
	}
	return names
}

// valuesLike declares names with the element types of values, without shapes.
func valuesLike(values []*onnxpb.ValueInfoProto, names []string) []*onnxpb.ValueInfoProto {
	like := make([]*onnxpb.ValueInfoProto, len(values))
	for i, v := range values {
		like[i] = &onnxpb.ValueInfoProto{Name: proto.String(names[i])}
		if t := v.GetType().GetTensorType(); t.GetElemType() != 0 {
			like[i].Type = tensorType(onnxpb.TensorProto_DataType(t.GetElemType()))
		}
	}
	return like
}

func tensorType(t onnxpb.TensorProto_DataType) *onnxpb.TypeProto {
	return &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(t))}}}
}
