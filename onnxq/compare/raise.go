package compare

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/write"
	"onnxquant/onnxq/restyle"
)

// raised returns a model at the opset of a model made from it, as package opset raises it. It returns
// x itself if the opset is the same. Nodes with outputs in opaque are hidden from the adapters: next
// to an operator unknown to them, they would write other nodes.
func raised(x *graph.Graph, other *onnxpb.ModelProto, opaque map[string]bool) (*graph.Graph, error) {
	to := graph.Opset(other)
	versions := map[string]int64{}
	for _, f := range other.Functions {
		versions[keyOfFunction(f)], _ = opset.Of(f.OpsetImport)
	}
	grows := func(f *onnxpb.FunctionProto) bool { // its quantized weights needed the opset
		from, _ := opset.Of(f.OpsetImport)
		return from < versions[keyOfFunction(f)]
	}
	if to <= x.Opset && !slices.ContainsFunc(x.File.Proto.Functions, grows) {
		return x, nil
	}
	c := x.Copy()
	var growing []*onnxpb.FunctionProto
	for _, f := range c.Proto.Functions {
		if grows(f) {
			growing = append(growing, f)
		}
	}
	if err := write.Inline(c, func(*graph.Value) bool { return false }); err != nil {
		return nil, err
	}
	var hidden []*onnxpb.NodeProto
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if opaque[graph.FirstOutput(n)] && graph.IsStandard(n.GetDomain()) && slices.Contains([]string{"MatMul", "Gemm", "Gather"}, n.GetOpType()) {
			n = c.Node(n)
			hidden = append(hidden, n)
			n.Domain = new(graph.Contrib)
		}
	})
	if err := rewrite.Raise(c, to, growing...); err != nil {
		return nil, err
	}
	for _, n := range hidden {
		n.Domain = nil
	}
	if len(growing) == 0 && unchanged(x, c) {
		return x, nil
	}
	stored := map[string]bool{} // the raised IR version would make them inputs that callers may leave out
	for _, v := range x.Values {
		stored[v.Name] = stored[v.Name] || v.MustBeInput
	}
	c.Proto.Graph.Input = slices.DeleteFunc(c.Proto.Graph.Input, func(in *onnxpb.ValueInfoProto) bool { return stored[in.GetName()] })
	view, err := x.File.View(c.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		old := c.OriginalTensor(t)
		switch {
		case old == nil:
			return nil, nil
		case old != t: // without the content that the adapters read
			name := t.Name
			proto.Reset(t)
			proto.Merge(t, old)
			t.Name = name
		}
		return x.File.Payload(old)
	})
	if err != nil {
		return nil, err
	}
	return graph.New(view)
}

// unchanged reports whether the main graph of a copy has the nodes, initializers and inputs of the
// original. Then no other index is needed, which takes much memory for very many nodes.
func unchanged(x *graph.Graph, c *graph.Copy) bool {
	was, is := x.File.Proto.Graph, c.Proto.Graph
	return slices.Equal(was.Node, is.Node) && len(was.Initializer) == len(is.Initializer) && len(was.Input) == len(is.Input)
}

// operatorsOnCodes are operators that package opset does not know.
var operatorsOnCodes = []string{"MatMulNBits", "MatMulBnb4", "GatherBlockQuantized"}

// coded lists the outputs of nodes of y that read weights of some forms before restyle.Dequantize; nil:
// of any form.
func coded(y *graph.Graph, folded []restyle.Weight, forms []string) map[string]bool {
	weights := map[string]bool{}
	for _, w := range folded {
		if forms == nil || slices.Contains(forms, w.Form) {
			weights[w.Became] = true
		}
	}
	outputs := map[string]bool{}
	note := func(n *onnxpb.NodeProto) bool { outputs[graph.FirstOutput(n)] = true; return n.GetOpType() == "MatMul" }
	for _, v := range y.Values {
		if !weights[v.Name] {
			continue
		}
		for _, u := range readers(y, v) {
			if !note(u) {
				continue
			}
			for _, next := range usesOf(y, u) {
				if next.Node.GetOpType() == "Add" { // of a bias
					note(next.Node)
				}
			}
		}
	}
	return outputs
}

// readers lists the nodes that read a value, or its transpose.
func readers(y *graph.Graph, v *graph.Value) (nodes []*onnxpb.NodeProto) {
	for _, u := range v.Uses {
		nodes = append(nodes, u.Node)
		if u.Node.GetOpType() == "Transpose" {
			for _, next := range usesOf(y, u.Node) {
				nodes = append(nodes, next.Node)
			}
		}
	}
	return nodes
}

func usesOf(y *graph.Graph, n *onnxpb.NodeProto) []graph.Use {
	if v := y.Made(n); v != nil {
		return v.Uses
	}
	return nil
}

func keyOfFunction(f *onnxpb.FunctionProto) string {
	return graph.FunctionKey(f.GetDomain(), f.GetName(), f.GetOverload())
}

// versions compares the IR versions and operator sets of the given models, and the operator sets of
// functions after raising.
func (m *matcher) versions(x, y *onnxpb.ModelProto) {
	if y.GetIrVersion() < x.GetIrVersion() {
		m.problem("IR version %d -> %d", x.GetIrVersion(), y.GetIrVersion())
	}
	from, to := graph.Opset(x), graph.Opset(y)
	switch {
	case to > from:
		m.note("opset %d -> %d", from, to)
	case to < from:
		m.problem("opset %d -> %d", from, to)
	}
	m.domains("", x.OpsetImport, y.OpsetImport, usedDomains(y.Graph))
	was := map[string]*onnxpb.FunctionProto{}
	for _, f := range x.Functions {
		was[keyOfFunction(f)] = f
	}
	is := map[string]*onnxpb.FunctionProto{}
	for _, f := range y.Functions {
		is[keyOfFunction(f)] = f
	}
	for _, f := range m.a.Graph.File.Proto.Functions {
		old, other := was[keyOfFunction(f)], is[keyOfFunction(f)]
		if old == nil || other == nil {
			continue // reported elsewhere
		}
		where := functionText(f)
		m.domains(where, old.OpsetImport, other.OpsetImport, usedDomains(&onnxpb.GraphProto{Node: other.Node}))
		from, _ := opset.Of(old.OpsetImport)
		want, _ := opset.Of(f.OpsetImport)
		switch got, _ := opset.Of(other.OpsetImport); {
		case got == want, got == from && sameNodes(old.Node, f.Node):
		default:
			m.problem("%sopset %d -> %d", where, from, got)
		}
	}
}

// domains compares the imported versions of custom operators.
func (m *matcher) domains(where string, x, y []*onnxpb.OperatorSetIdProto, used map[string]bool) {
	versions := map[string]int64{}
	for _, o := range y {
		versions[o.GetDomain()] = o.GetVersion()
	}
	for _, o := range x {
		domain := o.GetDomain()
		if graph.IsStandard(domain) {
			continue
		}
		v, there := versions[domain]
		switch {
		case there && v != o.GetVersion():
			m.problem("%soperators of %s: version %d -> %d", where, msg.Quote(domain), o.GetVersion(), v)
		case !there && used[domain]:
			m.problem("%soperators of %s: they are no longer imported", where, msg.Quote(domain))
		}
	}
}

// usedDomains lists the domains of the nodes of a graph and its subgraphs.
func usedDomains(g *onnxpb.GraphProto) map[string]bool {
	used := map[string]bool{}
	graph.WalkGraphs(g, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			used[n.GetDomain()] = true
		}
	})
	return used
}

// sameNodes reports whether raising a function left its nodes as they are.
func sameNodes(x, y []*onnxpb.NodeProto) bool {
	return proto.Equal(&onnxpb.GraphProto{Node: x}, &onnxpb.GraphProto{Node: y})
}
