package graph

import (
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// Only returns a model whose outputs are some values, without the nodes and initializers that they do
// not need. Each path is as Seen returns it, of an Observable value. A value in a branch becomes a
// float32 output, which is empty if the branch does not run. Values of the main graph that are given
// become inputs, and what only they need is left out, too. The model shares all tensors with x, and all
// nodes except Ifs.
func (x *Graph) Only(paths []string, given ...Given) *onnxpb.ModelProto {
	m := x.File.Proto
	p := &pruning{x, map[*onnxpb.GraphProto][]*leaving{}, given}
	var outputs []*onnxpb.ValueInfoProto
	for _, path := range paths {
		outputs = append(outputs, &onnxpb.ValueInfoProto{Name: &path})
		if x.Scope(m.Graph).Values[path] == nil {
			p.lift(path)
		}
	}
	return &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Functions: m.Functions, Graph: p.graph(m.Graph, outputs)}
}

// Seen names a value as the node n, which reads or makes it, sees it. In a branch, the name includes
// the branch's path: the value exists only if the branch runs.
func (x *Graph) Seen(n *onnxpb.NodeProto, v *Value) string { return x.Home(n).path + v.Name }

// Observable reports whether Only can compute a value under the name that Seen gives. The node must be
// in the main graph or in a branch of an If in it. The node must see the value, and the name must be
// unique.
func (x *Graph) Observable(n *onnxpb.NodeProto, v *Value) bool {
	home := x.Home(n)
	outmost := home
	for outmost.outer != nil && isIf(outmost.Owner) {
		outmost = outmost.outer
	}
	switch {
	case outmost.Graph != x.File.Proto.Graph || home.lookup(v.Name) != v:
		return false
	case home == outmost:
		return true
	}
	path := x.Seen(n, v)
	return x.homeOf(path) == home && !x.Named(path)
}

// homeOf returns the subgraph with the longest path that is a prefix of path, and that sees the rest
// as a name; nil if there is none.
func (x *Graph) homeOf(path string) *Scope {
	for end := strings.LastIndexByte(path, '/'); end >= 0; end = strings.LastIndexByte(path[:end], '/') {
		if s := x.paths[path[:end+1]]; s != nil && s.lookup(path[end+1:]) != nil {
			return s
		}
	}
	return nil
}

// pruning is the state of Only.
type pruning struct {
	*Graph
	lifted map[*onnxpb.GraphProto][]*leaving // by the branch that they leave, or that surrounds that branch
	given  []Given                           // values of the main graph
}

// leaving is a value that leaves a branch.
type leaving struct {
	branch *onnxpb.GraphProto
	name   string // there
	path   string // outside
}

// lift lets a value leave the branches that it is seen in.
func (p *pruning) lift(path string) {
	home := p.homeOf(path)
	if home == nil {
		return
	}
	l := &leaving{home.Graph, strings.TrimPrefix(path, home.path), path}
	for ; home.outer != nil; home = home.outer {
		p.lifted[home.Graph] = append(p.lifted[home.Graph], l)
	}
}

// graph returns a graph with the nodes that its outputs, and the values that leave it, need.
func (p *pruning) graph(g *onnxpb.GraphProto, outputs []*onnxpb.ValueInfoProto) *onnxpb.GraphProto {
	made := &onnxpb.GraphProto{Name: g.Name, Input: g.Input, Output: outputs}
	needed := map[string]bool{}
	for _, o := range outputs {
		needed[o.GetName()] = true
	}
	for _, l := range p.lifted[g] {
		if l.branch == g {
			needed[l.name] = true
		}
	}
	if g == p.File.Proto.Graph {
		made.Input = slices.Clone(g.Input)
		for _, v := range p.given {
			made.Input = append(made.Input, v.info())
		}
	}
	nodes, _ := Ordered(g.Node) // no error: New has looked for cycles
	for _, n := range slices.Backward(nodes) {
		p.forgetGiven(g, needed)
		if n := p.node(n, needed); n != nil {
			made.Node = append(made.Node, n)
			needRead(needed, n)
		}
	}
	slices.Reverse(made.Node)
	for _, t := range g.Initializer {
		if needed[t.GetName()] {
			made.Initializer = append(made.Initializer, t)
		}
	}
	for _, t := range g.SparseInitializer {
		if needed[t.GetValues().GetName()] {
			made.SparseInitializer = append(made.SparseInitializer, t)
		}
	}
	return made
}

// forgetGiven takes the values that are given from the needed ones of a graph.
func (p *pruning) forgetGiven(g *onnxpb.GraphProto, needed map[string]bool) {
	if g == p.File.Proto.Graph {
		for _, v := range p.given {
			delete(needed, v.Name)
		}
	}
}

// node returns a node, pruned, if any of its outputs is needed, else nil.
func (p *pruning) node(n *onnxpb.NodeProto, needed map[string]bool) *onnxpb.NodeProto {
	unneeded := func(name string) bool { return name == "" || !needed[name] }
	if !isIf(n) {
		if !slices.ContainsFunc(n.Output, func(name string) bool { return !unneeded(name) }) {
			return nil
		}
		return n
	}
	var lifted []*leaving
	for _, a := range n.Attribute {
		lifted = append(lifted, p.lifted[a.G]...)
	}
	made := &onnxpb.NodeProto{Name: n.Name, OpType: n.OpType, Domain: n.Domain, Input: n.Input}
	made.Output = slices.DeleteFunc(slices.Clone(n.Output), unneeded)
	for _, l := range lifted {
		made.Output = append(made.Output, l.path)
	}
	if len(made.Output) == 0 {
		return nil
	}
	for _, a := range n.Attribute {
		if a.G != nil {
			a = &onnxpb.AttributeProto{Name: a.Name, Type: a.Type, G: p.branch(n, a.G, unneeded, lifted)}
		}
		made.Attribute = append(made.Attribute, a)
	}
	return made
}

// branch returns a branch of an If, pruned to the outputs that are needed and to the values that leave
// it.
func (p *pruning) branch(n *onnxpb.NodeProto, g *onnxpb.GraphProto, unneeded func(name string) bool, lifted []*leaving) *onnxpb.GraphProto {
	var outputs []*onnxpb.ValueInfoProto
	for i, o := range g.Output {
		if i < len(n.Output) && !unneeded(n.Output[i]) {
			outputs = append(outputs, o)
		}
	}
	for _, l := range lifted {
		outputs = append(outputs, &onnxpb.ValueInfoProto{Name: &l.path, Type: floats})
	}
	made := p.graph(g, outputs)
	for _, l := range lifted {
		switch {
		case l.branch == g:
			made.Node = append(made.Node, &onnxpb.NodeProto{OpType: new("Cast"), Input: []string{l.name}, Output: []string{l.path}, Attribute: []*onnxpb.AttributeProto{
				{Name: new("to"), Type: new(onnxpb.AttributeProto_INT), I: new(int64(dtype.Float32))},
			}})
		case !slices.Contains(p.lifted[g], l):
			made.Node = append(made.Node, &onnxpb.NodeProto{OpType: new("Constant"), Output: []string{l.path}, Attribute: []*onnxpb.AttributeProto{
				{Name: new("value"), Type: new(onnxpb.AttributeProto_TENSOR), T: &onnxpb.TensorProto{DataType: new(int32(dtype.Float32)), Dims: []int64{0}, RawData: []byte{}}},
			}})
		}
	}
	return made
}

// floats is the type of values in float32, of any shape.
var floats = &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(dtype.Float32))}}}

// needRead marks the names that a node and its subgraphs read. It also marks names inside of
// subgraphs, which is harmless.
func needRead(needed map[string]bool, n *onnxpb.NodeProto) {
	for _, v := range n.Input {
		needed[v] = true
	}
	for _, a := range n.Attribute {
		for _, sub := range Subgraphs(a) {
			for _, inner := range sub.Node {
				needRead(needed, inner)
			}
			for _, out := range sub.Output {
				needed[out.GetName()] = true
			}
		}
	}
}
