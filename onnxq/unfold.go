package onnxq

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/spec"
)

// unfoldInFunction makes a weight of a function a float Constant, where it was
// decoded: functions have no initializers.
func (r *rebuild) unfoldInFunction(w *recognize.Weight) RewrittenWeight {
	function := w.Value.Body.Proto
	t := &onnxpb.TensorProto{Name: new(w.Value.Name), DataType: new(int32(w.Folded.Num.DType)), Dims: slices.Clone(w.Folded.Num.Shape)}
	r.made[t] = true
	r.fillFloats(t, w.Folded.Num, 1, w.Folded.Num.Size(), false)
	become(r.consumers.copies[w.Nodes[0]], graph.SpellingOfStandard(function.OpsetImport), "Constant", nil,
		&onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t})
	r.unfolded[function] = true
	return RewrittenWeight{Weight: w, Became: w.Value.Path, NewForm: string(spec.Float), OutBytes: graph.SizeOf(t), Changed: true}
}

// sweepFunctions removes what nothing reads any more from functions whose weights
// were unfolded.
func (r *rebuild) sweepFunctions() {
	for i, f := range r.model.file.Proto.Functions {
		if r.unfolded[f] {
			idle := map[string]bool{} // never read
			was := readInside(f)
			eachBody(f, func(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto) {
				for _, name := range namesMade(nodes, g) {
					idle[name] = !was[name]
				}
			})
			sweepFunction(r.proto.Functions[i], idle)
		}
	}
}

// sweepFunction removes nodes and initializers whose values nothing reads, but those
// that were idle before.
func sweepFunction(f *onnxpb.FunctionProto, idle map[string]bool) {
	for again := true; again; {
		again = false
		read := readInside(f)
		unread := func(name string) bool { return !read[name] && !idle[name] }
		dead := func(n *onnxpb.NodeProto) bool {
			gone := len(n.Output) > 0 && !slices.ContainsFunc(n.Output, func(name string) bool { return !unread(name) })
			again = again || gone
			return gone
		}
		f.Node = slices.DeleteFunc(f.Node, dead)
		graph.WalkSubgraphs(f.Node, func(g *onnxpb.GraphProto) {
			g.Node = slices.DeleteFunc(g.Node, dead)
			g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return unread(t.GetName()) })
		})
	}
}

// readInside tells which names are read in a function, or returned by it or by the
// graphs in it.
func readInside(f *onnxpb.FunctionProto) map[string]bool {
	read := map[string]bool{}
	note := func(names []string) {
		for _, name := range names {
			read[name] = true
		}
	}
	note(f.Output)
	eachBody(f, func(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto) {
		for _, n := range nodes {
			note(n.Input)
		}
		for _, o := range g.GetOutput() {
			read[o.GetName()] = true
		}
	})
	return read
}

// eachBody visits the nodes of a function, and the graphs in them.
func eachBody(f *onnxpb.FunctionProto, visit func(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto)) {
	visit(f.Node, nil)
	graph.WalkSubgraphs(f.Node, func(g *onnxpb.GraphProto) { visit(g.Node, g) })
}

// namesMade lists the values of nodes, and the initializers of their graph.
func namesMade(nodes []*onnxpb.NodeProto, g *onnxpb.GraphProto) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Output...)
	}
	for _, t := range g.GetInitializer() {
		names = append(names, t.GetName())
	}
	return names
}
