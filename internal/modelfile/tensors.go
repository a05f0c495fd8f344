package modelfile

import (
	"fmt"
	"iter"

	"onnxquant/internal/onnxpb"
)

// InTraining is the prefix of descriptions of tensors in training graphs.
const InTraining = "training: "

// Where describes where a tensor is, for messages.
type Where func() string

func (w Where) String() string { return w() }

// Tensors yields every tensor of a model: initializers, sparse initializers and
// tensors in attributes, in the main graph, subgraphs, functions and training
// graphs.
func Tensors(m *onnxpb.ModelProto) iter.Seq2[Where, *onnxpb.TensorProto] {
	return func(yield func(Where, *onnxpb.TensorProto) bool) {
		w := tensorWalk{yield: yield}
		w.graph("", m.GetGraph())
		for _, t := range m.GetTrainingInfo() {
			w.graph(InTraining, t.GetInitialization())
			w.graph(InTraining, t.GetAlgorithm())
		}
		for _, f := range m.GetFunctions() {
			w.nodes("function "+short(f.GetName())+": ", f.GetNode())
			w.attributes("function "+short(f.GetName())+": ", f.GetAttributeProto())
		}
	}
}

type tensorWalk struct {
	yield func(Where, *onnxpb.TensorProto) bool
	done  bool
}

func (w *tensorWalk) tensor(where func() string, t *onnxpb.TensorProto) {
	if t != nil && !w.done {
		w.done = !w.yield(where, t)
	}
}

func (w *tensorWalk) graph(where string, g *onnxpb.GraphProto) {
	for _, t := range g.GetInitializer() {
		w.tensor(func() string { return where + "initializer " + short(t.GetName()) }, t)
	}
	for _, s := range g.GetSparseInitializer() {
		w.sparse(where+"sparse initializer ", s)
	}
	w.nodes(where, g.GetNode())
}

func (w *tensorWalk) nodes(where string, nodes []*onnxpb.NodeProto) {
	for _, n := range nodes {
		if w.done {
			return
		}
		if len(n.GetAttribute()) > 0 {
			w.attributes(where+nodeName(n)+": ", n.GetAttribute())
		}
	}
}

// nodeName describes a node for messages. Many nodes have no name; then it is that of
// the first output.
func nodeName(n *onnxpb.NodeProto) string {
	name := n.GetName()
	if name == "" && len(n.GetOutput()) > 0 {
		name = n.GetOutput()[0]
	}
	op := short(n.GetOpType())
	return fmt.Sprintf("%s node %s", op[1:len(op)-1], short(name))
}

func (w *tensorWalk) attributes(where string, attrs []*onnxpb.AttributeProto) {
	for _, a := range attrs {
		if a.GetG() != nil || len(a.GetGraphs()) > 0 {
			// Without where: full paths would take quadratic time in the depth.
			inner := "subgraph " + short(a.GetName()) + ": "
			w.graph(inner, a.GetG())
			for _, g := range a.GetGraphs() {
				w.graph(inner, g)
			}
		}
		name := func(t *onnxpb.TensorProto) func() string {
			return func() string { return where + "attribute " + short(a.GetName()) + ", tensor " + short(t.GetName()) }
		}
		w.tensor(name(a.GetT()), a.GetT())
		for _, t := range a.GetTensors() {
			w.tensor(name(t), t)
		}
		w.sparse(where+"attribute "+short(a.GetName())+", ", a.GetSparseTensor())
		for _, s := range a.GetSparseTensors() {
			w.sparse(where+"attribute "+short(a.GetName())+", ", s)
		}
	}
}

func (w *tensorWalk) sparse(where string, s *onnxpb.SparseTensorProto) {
	values, indices := s.GetValues(), s.GetIndices()
	w.tensor(func() string { return where + "values " + short(values.GetName()) }, values)
	w.tensor(func() string { return where + "indices of " + short(values.GetName()) }, indices)
}
