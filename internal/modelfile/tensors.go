package modelfile

import (
	"fmt"
	"iter"

	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// InTraining is the prefix of descriptions of tensors in training graphs.
const InTraining = "training: "

// Where describes the place of a tensor. It builds its text on demand: a model may have very many
// tensors.
type Where struct {
	outer     string                 // the graph or function, unless it is the main graph
	node      *onnxpb.NodeProto      // with the attribute; nil without
	attribute *onnxpb.AttributeProto // that holds the tensor; nil without
	kind      string                 // kind of tensor, for messages
	tensor    *onnxpb.TensorProto    // its name is shown
}

// String describes the place for a message.
func (w Where) String() string {
	text := w.outer
	if w.node != nil {
		text += nodeName(w.node) + ": "
	}
	if w.attribute != nil {
		text += "attribute " + msg.Quote(w.attribute.GetName()) + ", "
	}
	return text + w.kind + " " + msg.Quote(w.tensor.GetName())
}

// Name is the name of the tensor in the main graph: of an initializer, or of the output of its Constant node.
// Elsewhere it is the text of the place.
func (w Where) Name() string {
	switch {
	case w.outer != "" || w.kind != "initializer" && w.attribute == nil:
	case w.node == nil:
		return w.tensor.GetName()
	case w.node.GetOpType() == "Constant" && len(w.node.GetOutput()) == 1 && w.attribute.GetT() == w.tensor:
		return w.node.GetOutput()[0]
	}
	return w.String()
}

// Tensors yields every tensor of a model: initializers, sparse initializers and tensors in attributes,
// in the main graph, subgraphs, functions and training graphs.
func Tensors(m *onnxpb.ModelProto) iter.Seq2[Where, *onnxpb.TensorProto] {
	return func(yield func(Where, *onnxpb.TensorProto) bool) {
		w := tensorWalk{yield: yield}
		w.graph("", m.GetGraph())
		for _, t := range m.GetTrainingInfo() {
			w.graph(InTraining, t.GetInitialization())
			w.graph(InTraining, t.GetAlgorithm())
		}
		for _, f := range m.GetFunctions() {
			outer := "function " + msg.Quote(f.GetName()) + ": "
			w.nodes(outer, f.GetNode())
			w.attributes(Where{outer: outer}, f.GetAttributeProto())
		}
	}
}

type tensorWalk struct {
	yield func(Where, *onnxpb.TensorProto) bool
	done  bool
}

// tensor yields t, which is at a place.
func (w *tensorWalk) tensor(at Where, kind string, t *onnxpb.TensorProto) {
	if t != nil && !w.done {
		at.kind, at.tensor = kind, t
		w.done = !w.yield(at, t)
	}
}

func (w *tensorWalk) graph(outer string, g *onnxpb.GraphProto) {
	at := Where{outer: outer}
	for _, t := range g.GetInitializer() {
		w.tensor(at, "initializer", t)
	}
	for _, s := range g.GetSparseInitializer() {
		w.sparse(at, "sparse initializer ", s)
	}
	w.nodes(outer, g.GetNode())
}

func (w *tensorWalk) nodes(outer string, nodes []*onnxpb.NodeProto) {
	for _, n := range nodes {
		if w.done {
			return
		}
		w.attributes(Where{outer: outer, node: n}, n.GetAttribute())
	}
}

// nodeName describes a node for messages: by its name or, as many nodes have none, by its first
// output.
func nodeName(n *onnxpb.NodeProto) string {
	name := n.GetName()
	if name == "" && len(n.GetOutput()) > 0 {
		name = n.GetOutput()[0]
	}
	op := msg.Quote(n.GetOpType())
	return fmt.Sprintf("%s node %s", op[1:len(op)-1], msg.Quote(name))
}

func (w *tensorWalk) attributes(at Where, attrs []*onnxpb.AttributeProto) {
	for _, a := range attrs {
		if a.GetG() != nil || len(a.GetGraphs()) > 0 {
			// Without at: full paths would take quadratic time in the depth.
			inner := "subgraph " + msg.Quote(a.GetName()) + ": "
			w.graph(inner, a.GetG())
			for _, g := range a.GetGraphs() {
				w.graph(inner, g)
			}
		}
		at.attribute = a
		w.tensor(at, "tensor", a.GetT())
		for _, t := range a.GetTensors() {
			w.tensor(at, "tensor", t)
		}
		w.sparse(at, "", a.GetSparseTensor())
		for _, s := range a.GetSparseTensors() {
			w.sparse(at, "", s)
		}
	}
}

func (w *tensorWalk) sparse(at Where, kind string, s *onnxpb.SparseTensorProto) {
	values := s.GetValues()
	w.tensor(at, kind+"values", values)
	if indices := s.GetIndices(); indices != nil && !w.done {
		at.kind, at.tensor = kind+"indices of", values // indices have no name of their own
		w.done = !w.yield(at, indices)
	}
}
