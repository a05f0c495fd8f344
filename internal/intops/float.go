package intops

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Model is a model without operators that compute with codes.
type Model struct {
	Graph *graph.Graph
	Forms map[string]string // name of codes → the operator that read them in the original

	// Ranges has, by name, the values that were codes before. Where these may have cut something
	// off, a Clip or a Relu makes the value.
	Ranges map[string]Range

	// Steps has, by name, the distance between two codes of a value: of the values in Ranges, and of
	// inputs of a QuantizeLinear.
	Steps map[string]float64
}

// Float returns the model with float operators. Its graph is x if there is nothing to do.
func Float(x *graph.Graph) (*Model, error) {
	r := &rewriting{
		x: x, floats: map[*graph.Value]decoded{}, wanted: map[*graph.Value]*onnxpb.NodeProto{}, gone: map[int]bool{},
		forms: map[string]string{}, ranges: map[string]Range{}, steps: map[string]float64{},
	}
	var nodes []*onnxpb.NodeProto // of the main graph and its subgraphs
	graph.WalkGraphs(x.File.Proto.Graph, func(g *onnxpb.GraphProto) { nodes = append(nodes, g.Node...) })
	if !slices.ContainsFunc(nodes, r.patterns) {
		return &Model{Graph: x}, nil
	}
	r.pairs = slices.ContainsFunc(nodes, onCodes)
	r.copy = x.Copy()
	r.made = make([][]*onnxpb.NodeProto, len(r.copy.Graphs()))
	for _, n := range nodes {
		if q := r.fromDecoder(n); q.codes != nil && r.wanted[q.codes] == nil && x.Home(n).Graph == q.codes.Graph {
			r.wanted[q.codes] = n
		}
	}
	for _, n := range nodes {
		if !r.gone[x.Number(n)] {
			r.replace(n)
		}
	}
	if !r.changed {
		return &Model{Graph: x}, nil
	}
	r.finish()
	view, err := x.File.View(r.copy.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		if old := r.copy.OriginalTensor(t); old != nil {
			return x.File.Payload(old)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	made, err := graph.New(view)
	return &Model{made, r.forms, r.ranges, r.steps}, err
}

// patterns reports whether a node is part of a pattern.
func (r *rewriting) patterns(n *onnxpb.NodeProto) bool {
	v := r.x.Source(n, 0)
	return onCodes(n) || decoders[graph.Operator(n)] && v != nil && v.Node != nil && isMover(v.Node)
}

// onCodes reports whether an operator computes with codes.
func onCodes(n *onnxpb.NodeProto) bool {
	op := graph.Operator(n)
	return products[op].product != "" || internals[op] != nil || calculations[op].op != ""
}

// rewriting is the state of Float.
type rewriting struct {
	x      *graph.Graph
	copy   *graph.Copy
	made   [][]*onnxpb.NodeProto // new nodes, by number of the graph
	forms  map[string]string     // see Model
	ranges map[string]Range
	steps  map[string]float64
	gone   map[int]bool // nodes whose outputs are made by new nodes, by number

	pairs   bool // the model computes with codes: pairs of QuantizeLinear and DequantizeLinear are removed too
	changed bool
	floats  map[*graph.Value]decoded           // codes → their float value
	wanted  map[*graph.Value]*onnxpb.NodeProto // codes → the DequantizeLinear whose output name the float value may take
	depth   int                                // of the recursion
}

// quantity is codes with what decodes them. Without zero, it is 0.
type quantity struct{ codes, scale, zero *graph.Value }

// decoded is the float value of a quantity.
type decoded struct {
	quantity
	name string // "": there is no float value
}

// deepest bounds the recursion along a chain of nodes, against hostile models.
const deepest = 1 << 12

// replace replaces a node whose output is float, if it ends a pattern.
func (r *rewriting) replace(n *onnxpb.NodeProto) {
	op := graph.Operator(n)
	switch {
	case decoders[op]:
		r.decoder(n)
	case products[op].product != "":
		r.product(n, products[op])
	case internals[op] != nil:
		internals[op](r, n)
	case calculations[op].op == "Gemm" && !graph.HasInput(n, 7):
		r.calculation(n, calculations[op])
	case op == "ArgMax" || op == "Shape" || op == "Size":
		r.indifferent(n)
	}
}

// fromDecoder replaces a DequantizeLinear of computed codes. In a float model, a QuantizeLinear
// followed by DequantizeLinear is fake quantization and is kept.
func (r *rewriting) fromDecoder(n *onnxpb.NodeProto) (q quantity) {
	v := r.x.Source(n, 0)
	if !decoders[graph.Operator(n)] || v == nil || v.Node == nil || v.Tensor != nil || quantizers[graph.Operator(v.Node)] && !r.pairs || r.x.Made(n) == nil {
		return q
	}
	return quantity{v, r.x.Source(n, 1), r.x.Source(n, 2)}
}

// decoder replaces a DequantizeLinear by the value that it decodes.
func (r *rewriting) decoder(n *onnxpb.NodeProto) {
	q := r.fromDecoder(n)
	if q.codes == nil {
		return
	}
	name, ok := r.float(q)
	if !ok || r.gone[r.x.Number(n)] {
		return
	}
	r.drop(n)
	r.add(r.x.Home(n).Graph, &onnxpb.NodeProto{OpType: new("Identity"), Input: []string{name}, Output: []string{n.Output[0]}})
}

// indifferent makes a node that may read codes as well as floats read floats.
func (r *rewriting) indifferent(n *onnxpb.NodeProto) {
	if q := r.quantityOf(r.x.Source(n, 0)); q.scale != nil {
		if name, ok := r.float(q); ok {
			r.copy.Node(n).Input[0], r.changed = name, true
		}
	}
}

// drop removes a node: another one makes its outputs.
func (r *rewriting) drop(n *onnxpb.NodeProto) {
	r.gone[r.x.Number(n)], r.changed = true, true
	r.copy.Drop(n)
}

// add adds a node to a graph.
func (r *rewriting) add(g *onnxpb.GraphProto, n *onnxpb.NodeProto) {
	i := r.copy.GraphNumber(g)
	r.made[i] = append(r.made[i], n)
}

// finish puts the new nodes into the copy, and removes the nodes that nothing reads any more, with
// their tensors.
func (r *rewriting) finish() {
	was := reads(r.x.File.Proto)
	r.copy.Tidy()
	for i, g := range r.copy.Graphs() {
		g.Node = append(r.made[i], g.Node...)
	}
	r.skipIdentities()
	now := reads(r.copy.Proto)
	dead := func(name string) bool { return now[name] == 0 && (was[name] > 0 || !r.x.Named(name)) }
	unread := unreadNodes(r.copy.Graphs(), now, dead)
	i := 0 // position in unread
	for _, g := range r.copy.Graphs() {
		removed, held := map[string]bool{}, map[string]bool{}
		g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool {
			removed[t.GetName()] = dead(t.GetName())
			return removed[t.GetName()]
		})
		g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return removed[in.GetName()] }) // up to IR 3
		g.Node = slices.DeleteFunc(g.Node, func(n *onnxpb.NodeProto) bool {
			if i++; !unread[i-1] {
				return false
			}
			for _, name := range n.Output {
				removed[name] = true
			}
			return true
		})
		for _, n := range g.Node {
			for _, name := range n.Output {
				held[name] = true
			}
		}
		g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool {
			return (was[v.GetName()] > 0 || removed[v.GetName()]) && !held[v.GetName()]
		})
	}
	r.copy.Sort()
}

// unreadNodes reports for each node of the graphs, in order, whether nothing reads it any more: no
// output is read, and at least one is dead. Nodes unread in the original are kept. It subtracts the
// reads of these nodes from reads.
func unreadNodes(graphs []*onnxpb.GraphProto, reads map[string]int, dead func(name string) bool) []bool {
	var nodes []*onnxpb.NodeProto
	var open []int
	makers := map[string]int{}
	for _, g := range graphs {
		for _, n := range g.Node {
			for _, name := range n.Output {
				makers[name] = len(nodes)
			}
			open = append(open, len(nodes))
			nodes = append(nodes, n)
		}
	}
	unread := make([]bool, len(nodes))
	for len(open) > 0 {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		n := nodes[i]
		read := func(name string) bool { return name != "" && reads[name] > 0 }
		died := func(name string) bool { return name != "" && dead(name) }
		if unread[i] || slices.ContainsFunc(n.Output, read) || !slices.ContainsFunc(n.Output, died) {
			continue
		}
		unread[i] = true
		for _, name := range n.Input {
			if reads[name]--; reads[name] > 0 {
				continue
			}
			if maker, ok := makers[name]; ok {
				open = append(open, maker)
			}
		}
	}
	return unread
}

// skipIdentities bypasses new Identity nodes in the main graph, where each name has one meaning.
func (r *rewriting) skipIdentities() {
	source := map[string]string{}
	main := r.copy.Proto.Graph
	for _, n := range r.made[0] {
		if n.GetOpType() == "Identity" && !slices.ContainsFunc(main.Output, func(o *onnxpb.ValueInfoProto) bool { return o.GetName() == n.Output[0] }) {
			source[n.Output[0]] = n.Input[0]
		}
	}
	read := func(name string) string {
		for range len(source) {
			from, ok := source[name]
			if !ok {
				break
			}
			name = from
		}
		return name
	}
	graph.WalkAllGraphs(r.copy.Proto, func(g *onnxpb.GraphProto) {
		for i, n := range g.Node {
			g.Node[i] = graph.Reading(n, read)
		}
	})
}

// reads counts how often each name is read or returned in the main graph and its subgraphs.
func reads(m *onnxpb.ModelProto) map[string]int {
	count := map[string]int{}
	graph.WalkGraphs(m.Graph, func(g *onnxpb.GraphProto) {
		for _, o := range g.Output {
			count[o.GetName()]++
		}
		for _, n := range g.Node {
			for _, name := range n.Input {
				count[name]++
			}
		}
	})
	return count
}
