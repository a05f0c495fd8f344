package onnxq

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/onnxq/spec"
)

// inlineSize is the size up to which contents become part of the structure.
const inlineSize = 1 << 10

// rewritten is a converted model. The contents that are not copied are parts of
// its quantized weights.
type rewritten struct {
	out     output
	weights []*weight
}

// rewrite makes the structure of the converted model.
func (m *Model) rewrite(decisions []*decision) (*rewritten, error) {
	proto, original := m.clone()
	r := &rewritten{out: output{proto: proto}}
	names := m.index.NewNames()

	consumers := newConsumers(m.index, m.file.Proto, r.out.proto)
	selected := map[*onnxpb.TensorProto]*weight{}
	need := int64(0)
	growing := map[*onnxpb.FunctionProto]bool{} // functions that hold weights
	for _, d := range decisions {
		if !d.quantize {
			continue
		}
		src, err := m.file.Payload(d.value.Tensor)
		if err != nil {
			return nil, err
		}
		w, err := newWeight(d, src)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", msg.Quote(d.value.Path), err)
		}
		r.weights = append(r.weights, w)
		selected[d.value.Tensor] = w
		need = max(need, w.opset())
		switch d.choice.style {
		case spec.NBits:
			w.decoder = &builder{domain: consumers.domain, fresh: names.Fresh}
			consumers.readCodes(w, w.decoder)
		case spec.QDQ:
			w.output = names.Fresh(w.d.value.Name + "_DequantizeLinear_Output")
			consumers.readAnew(w.d.value, w.output)
		}
		if d.value.Body != nil {
			growing[d.value.Body.Proto] = true
		}
	}
	consumers.finish(r.out.proto)

	replaced := func(t *onnxpb.TensorProto) bool { return selected[t] != nil && selected[t].d.choice.style != spec.QDQ }
	if err := m.inline(original, replaced); err != nil {
		return nil, err
	}
	var functions []*onnxpb.FunctionProto
	for i, f := range m.file.Proto.Functions {
		if growing[f] {
			functions = append(functions, r.out.proto.Functions[i])
		}
	}
	if err := raise(r.out.proto, need, names.Fresh, functions); err != nil {
		return nil, err
	}
	r.replace(r.out.proto.Graph, graph.SpellingOfStandard(r.out.proto.OpsetImport), original, selected, names.Fresh)
	for _, f := range functions {
		b := &builder{domain: graph.SpellingOfStandard(f.OpsetImport), fresh: names.Fresh}
		nodes := r.replaceNodes(b, f.Node, original, selected)
		f.Node = slices.Concat(b.constantNodes(), b.nodes, nodes)
		if nodes, err := graph.Ordered(f.Node); err == nil {
			f.Node = nodes
		}
	}
	graph.WalkGraphs(r.out.proto.Graph, func(g *onnxpb.GraphProto) {
		if nodes, err := graph.Ordered(g.Node); err == nil { // the input has been checked
			g.Node = nodes
		}
	})
	made := map[*onnxpb.TensorProto]bool{}
	for _, w := range r.weights {
		for _, t := range w.written() {
			made[t] = true
		}
	}
	return r, r.out.collect(m, original, made)
}

// clone copies the structure, and tells which tensor each of the copy was.
func (m *Model) clone() (copied *onnxpb.ModelProto, original map[*onnxpb.TensorProto]*onnxpb.TensorProto) {
	copied = proto.Clone(m.file.Proto).(*onnxpb.ModelProto)
	original = map[*onnxpb.TensorProto]*onnxpb.TensorProto{}
	var clones []*onnxpb.TensorProto // the same ones, in the same order
	for _, t := range modelfile.Tensors(copied) {
		clones = append(clones, t)
	}
	i := 0
	for _, t := range modelfile.Tensors(m.file.Proto) {
		original[clones[i]] = t
		i++
	}
	return copied, original
}

// raise brings the model to an opset that has the operators needed, and to an
// IR version that has the opset. The functions will need them too.
func raise(m *onnxpb.ModelProto, need int64, fresh func(string) string, functions []*onnxpb.FunctionProto) error {
	if need == 0 {
		return nil
	}
	if err := opset.Raise(m, need, fresh, functions...); err != nil {
		return err
	}
	if ir := opset.IRFor(graph.Opset(m)); m.GetIrVersion() < ir {
		m.IrVersion = &ir
	}
	return nil
}

// replace puts the tensors and nodes of quantized weights in the place of the
// weights, in a graph and in the subgraphs of its nodes.
func (r *rewritten) replace(g *onnxpb.GraphProto, domain string, original map[*onnxpb.TensorProto]*onnxpb.TensorProto, selected map[*onnxpb.TensorProto]*weight, fresh func(string) string) {
	b := &builder{domain: domain, fresh: fresh}
	gone := map[string]bool{}
	for _, t := range g.Initializer {
		w := selected[original[t]]
		if w == nil || w.d.choice.style == spec.QDQ {
			b.tensors = append(b.tensors, t)
		}
		if w == nil {
			continue
		}
		w.build(b)
		if w.codes != nil {
			gone[w.d.value.Name] = true // an input, up to IR 3
			w.codes.DocString, w.codes.MetadataProps = t.DocString, t.MetadataProps
		}
	}
	nodes := r.replaceNodes(b, g.Node, original, selected)
	g.Initializer = b.tensors
	g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return gone[in.GetName()] })
	g.Node = append(b.nodes, nodes...)
}

// replaceNodes leaves out Constant nodes that held weights.
func (r *rewritten) replaceNodes(b *builder, nodes []*onnxpb.NodeProto, original map[*onnxpb.TensorProto]*onnxpb.TensorProto, selected map[*onnxpb.TensorProto]*weight) (kept []*onnxpb.NodeProto) {
	for _, n := range nodes {
		w := selected[original[graph.ConstantTensor(n)]]
		if w != nil {
			w.build(b)
		}
		if w != nil && w.codes != nil {
			continue
		}
		for _, a := range n.Attribute {
			for _, sub := range graph.Subgraphs(a) {
				r.replace(sub, b.domain, original, selected, b.fresh)
			}
		}
		kept = append(kept, n)
	}
	return kept
}

// inline makes the small contents of tensors that are kept part of the
// structure: adapters of the opset may look at them, and they are not worth a
// gap. In typed fields they stay what they were.
func (m *Model) inline(original map[*onnxpb.TensorProto]*onnxpb.TensorProto, gone func(old *onnxpb.TensorProto) bool) error {
	for t, old := range original {
		if gone(old) || graph.SizeOf(t) > inlineSize || dtype.DType(t.GetDataType()) == dtype.String {
			continue
		}
		t.Payload, t.ExternalData, t.DataLocation = nil, nil, nil
		if err := m.file.Inline(t, old); err != nil {
			return err
		}
	}
	return nil
}

// collect lists the contents to be written: those that are made anew, and what
// was not inlined of the input's.
func (o *output) collect(m *Model, original map[*onnxpb.TensorProto]*onnxpb.TensorProto, made map[*onnxpb.TensorProto]bool) error {
	for _, t := range modelfile.Tensors(o.proto) {
		c := content{size: graph.SizeOf(t)}
		if old := original[t]; old != nil && c.size > inlineSize {
			var err error
			if c.copy, err = m.file.Payload(old); err != nil {
				return err
			}
			t.ExternalData, t.DataLocation = nil, nil
		} else if !made[t] {
			continue // in the structure
		}
		o.add(t, c)
	}
	return nil
}
