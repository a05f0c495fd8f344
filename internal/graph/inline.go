package graph

import (
	"slices"

	"onnxquant/internal/onnxpb"
)

// Inlined returns an equivalent graph without function calls. It shares all tensors with x. It returns
// x itself if there are no functions, or if they cannot be inlined: they import other opsets than the
// model, hold initializers in subgraphs, take graphs as attributes, or make too many nodes.
func (x *Graph) Inlined() (*Graph, error) {
	m := x.File.Proto
	if len(m.Functions) == 0 {
		return x, nil
	}
	in := &inlining{Graph: x, fresh: x.NewNames(), opsets: slices.Clone(m.OpsetImport)}
	g := in.subgraph(m.Graph, nil)
	if in.failed {
		return x, nil
	}
	view, err := x.File.View(&onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: in.opsets, Graph: g}, x.File.Payload)
	if err != nil {
		return nil, err
	}
	return New(view)
}

// mostInlined limits the number of nodes after inlining.
const mostInlined = 1 << 17

// inlining is the state of Inlined.
type inlining struct {
	*Graph
	fresh  *Names
	opsets []*onnxpb.OperatorSetIdProto
	nodes  int
	failed bool
}

// call is a function body at one call, or a subgraph of it.
type call struct {
	outer      *call             // around a subgraph
	names      map[string]string // of values here → in the new graph
	attributes []*onnxpb.AttributeProto
}

// body returns nodes in which calls of functions are inlined. c is nil outside of functions.
func (in *inlining) body(nodes []*onnxpb.NodeProto, c *call) (made []*onnxpb.NodeProto) {
	for _, n := range nodes {
		if in.nodes++; in.nodes > mostInlined || in.failed {
			in.failed = true
			return nil
		}
		f := in.Called(n)
		n = in.node(n, c)
		if f == nil {
			made = append(made, n)
		} else {
			made = append(made, in.call(f, n)...)
		}
	}
	return made
}

// call returns the nodes of a function in the place of a node that calls it.
func (in *inlining) call(f *Function, n *onnxpb.NodeProto) []*onnxpb.NodeProto {
	in.imports(f.Proto.OpsetImport)
	c := &call{names: map[string]string{}, attributes: slices.Concat(n.Attribute, f.Proto.AttributeProto)}
	for i, name := range f.Proto.Input {
		if c.names[name] = ""; i < len(n.Input) {
			c.names[name] = n.Input[i]
		}
	}
	var again []*onnxpb.NodeProto // outputs of the function that are also its inputs, or repeat another output
	for i, name := range f.Proto.Output {
		if i >= len(n.Output) || n.Output[i] == "" {
			continue
		}
		if from, ok := c.names[name]; ok {
			again = append(again, &onnxpb.NodeProto{OpType: new("Identity"), Input: []string{from}, Output: []string{n.Output[i]}})
		} else {
			c.names[name] = n.Output[i]
		}
	}
	for _, inner := range f.Proto.Node {
		for _, name := range inner.Output {
			if _, ok := c.names[name]; !ok && name != "" {
				c.names[name] = in.fresh.Fresh(Label(n) + "/" + name)
			}
		}
	}
	return append(in.body(f.Proto.Node, c), again...)
}

// imports adds the opsets of a function to the model's. Inlining fails if the model imports another
// version.
func (in *inlining) imports(opsets []*onnxpb.OperatorSetIdProto) {
	for _, o := range opsets {
		i := slices.IndexFunc(in.opsets, func(p *onnxpb.OperatorSetIdProto) bool { return SameDomain(p.GetDomain(), o.GetDomain()) })
		if i < 0 {
			in.opsets = append(in.opsets, o)
		} else if in.opsets[i].GetVersion() != o.GetVersion() {
			in.failed = true
		}
	}
}

// node returns a node for the new graph: n itself if nothing changes.
func (in *inlining) node(n *onnxpb.NodeProto, c *call) *onnxpb.NodeProto {
	if c == nil && !slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return len(Subgraphs(a)) > 0 }) {
		return n
	}
	made := &onnxpb.NodeProto{Name: n.Name, OpType: n.OpType, Domain: n.Domain, Overload: n.Overload, Input: c.all(n.Input), Output: c.all(n.Output)}
	for _, a := range n.Attribute {
		if a = in.attribute(a, c); a != nil {
			made.Attribute = append(made.Attribute, a)
		}
	}
	return made
}

// all returns what names here are in the new graph.
func (c *call) all(names []string) []string {
	if c == nil {
		return names
	}
	made := make([]string, len(names))
	for i, name := range names {
		made[i] = c.name(name)
	}
	return made
}

// name maps a name here to its name in the new graph; "" for an input that the call omits.
func (c *call) name(name string) string {
	for ; c != nil && name != ""; c = c.outer {
		if made, ok := c.names[name]; ok {
			return made
		}
	}
	return ""
}

// attribute returns an attribute with its value, which may be an attribute of the call; nil if this has none.
func (in *inlining) attribute(a *onnxpb.AttributeProto, c *call) *onnxpb.AttributeProto {
	given := c != nil && a.GetRefAttrName() != ""
	if given {
		i := slices.IndexFunc(c.attributes, func(b *onnxpb.AttributeProto) bool { return b.GetName() == a.GetRefAttrName() })
		if i < 0 {
			return nil
		}
		b := c.attributes[i]
		a = &onnxpb.AttributeProto{
			Name: a.Name, Type: b.Type, F: b.F, I: b.I, S: b.S, T: b.T, G: b.G, Graphs: b.Graphs, Floats: b.Floats, Ints: b.Ints, Strings: b.Strings, Tensors: b.Tensors,
		}
	}
	switch gs := Subgraphs(a); {
	case len(gs) == 0:
		return a
	case given || len(a.Graphs) > 0:
		in.failed = true // a given graph reads values of the caller
		return nil
	}
	return &onnxpb.AttributeProto{Name: a.Name, Type: a.Type, G: in.subgraph(a.G, c)}
}

// subgraph returns a graph for the new graph. In a call its values get new names, because their old
// names may also exist outside of the function.
func (in *inlining) subgraph(g *onnxpb.GraphProto, c *call) *onnxpb.GraphProto {
	if c == nil {
		return &onnxpb.GraphProto{
			Name: g.Name, Input: g.Input, Output: g.Output, Initializer: g.Initializer, SparseInitializer: g.SparseInitializer, ValueInfo: g.ValueInfo,
			Node: in.body(g.Node, nil),
		}
	}
	if len(g.Initializer)+len(g.SparseInitializer) > 0 {
		in.failed = true
		return nil
	}
	own := &call{outer: c, names: map[string]string{}, attributes: c.attributes}
	for _, i := range g.Input {
		own.names[i.GetName()] = in.fresh.Fresh(i.GetName())
	}
	for _, n := range g.Node {
		for _, name := range n.Output {
			own.names[name] = in.fresh.Fresh(name)
		}
	}
	return &onnxpb.GraphProto{Name: g.Name, Input: own.infos(g.Input), Output: own.infos(g.Output), Node: in.body(g.Node, own)}
}

// infos returns inputs or outputs of a subgraph, with their names in the new graph.
func (c *call) infos(all []*onnxpb.ValueInfoProto) (made []*onnxpb.ValueInfoProto) {
	for _, i := range all {
		made = append(made, &onnxpb.ValueInfoProto{Name: new(c.name(i.GetName())), Type: i.Type})
	}
	return made
}
