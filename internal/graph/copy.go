package graph

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Copy is a copy of a model's structure, made to be changed. The original is not changed; Copy maps
// its nodes, tensors and graphs to the copied ones.
//
// A model may have very many nodes and small constants, few of which change. So the main graph shares
// with the original: nodes without tensors or graphs, initializers whose content is in the structure,
// and the types of values. Shared messages must be replaced, not changed. [Copy.Node] returns a node
// that may be changed; [Copy.Own] makes all initializers changeable.
type Copy struct {
	Proto    *onnxpb.ModelProto
	Original *Graph
	Names    *Names // of the model; may grow

	nodes     map[*onnxpb.NodeProto]*onnxpb.NodeProto     // original → copy; without the shared ones
	originals map[*onnxpb.TensorProto]*onnxpb.TensorProto // copy → original; without the shared ones
	values    map[*onnxpb.TensorProto]*Value              // copy → value of the original; without the shared ones
	numbers   map[*onnxpb.GraphProto]int                  // original → position in graphs
	graphs    []*onnxpb.GraphProto                        // of the copy

	contents map[*onnxpb.TensorProto]*modelfile.Payload // of new tensors

	dropped map[*onnxpb.NodeProto]bool                // nodes of the copy to remove
	behind  map[*onnxpb.NodeProto][]*onnxpb.NodeProto // node of the copy → new nodes to insert after it
}

// Copy copies the structure of the model.
func (x *Graph) Copy() *Copy {
	c := &Copy{
		Proto:     copyModel(x.File.Proto),
		Original:  x,
		Names:     x.NewNames(),
		nodes:     map[*onnxpb.NodeProto]*onnxpb.NodeProto{},
		originals: map[*onnxpb.TensorProto]*onnxpb.TensorProto{},
		values:    map[*onnxpb.TensorProto]*Value{},
		numbers:   map[*onnxpb.GraphProto]int{},
		dropped:   map[*onnxpb.NodeProto]bool{},
		behind:    map[*onnxpb.NodeProto][]*onnxpb.NodeProto{},
	}
	// Original and copy are walked in the same order, so equal positions correspond.
	var tensors []*onnxpb.TensorProto
	for _, t := range modelfile.Tensors(c.Proto) {
		tensors = append(tensors, t)
	}
	copies := map[*onnxpb.TensorProto]*onnxpb.TensorProto{}
	i := 0
	for _, t := range modelfile.Tensors(x.File.Proto) {
		if made := tensors[i]; made != t {
			copies[t], c.originals[made] = made, t
		}
		i++
	}
	for _, v := range x.Values {
		if made := copies[v.Tensor]; made != nil {
			c.values[made] = v
		}
	}
	nodes := make([]*onnxpb.NodeProto, 0, len(x.numbers))
	WalkNodes(c.Proto, func(n *onnxpb.NodeProto) { nodes = append(nodes, n) })
	i = 0
	WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		if nodes[i] != n {
			c.nodes[n] = nodes[i]
		}
		i++
	})
	WalkAllGraphs(c.Proto, func(g *onnxpb.GraphProto) { c.graphs = append(c.graphs, g) })
	WalkAllGraphs(x.File.Proto, func(g *onnxpb.GraphProto) { c.numbers[g] = len(c.numbers) })
	c.spellStandard()
	return c
}

// copyModel clones a model, without the messages that a Copy shares.
func copyModel(m *onnxpb.ModelProto) *onnxpb.ModelProto {
	made := cloneWithout(m, "graph")
	made.Graph = cloneWithout(m.Graph, "node", "value_info", "initializer")
	made.Graph.ValueInfo = slices.Clone(m.Graph.ValueInfo)
	made.Graph.Initializer = slices.Clone(m.Graph.Initializer)
	for i, t := range made.Graph.Initializer {
		if t.RawData == nil || t.DataLocation != nil || len(t.ExternalData) > 0 {
			made.Graph.Initializer[i] = proto.CloneOf(t)
		}
	}
	made.Graph.Node = slices.Clone(m.Graph.Node)
	for i, n := range made.Graph.Node {
		if n.GetDomain() == longStandard || slices.ContainsFunc(n.Attribute, holdsTensors) {
			made.Graph.Node[i] = proto.CloneOf(n)
		}
	}
	return made
}

// holdsTensors reports whether an attribute holds tensors or graphs.
func holdsTensors(a *onnxpb.AttributeProto) bool {
	return a.T != nil || a.G != nil || a.SparseTensor != nil || len(a.Tensors)+len(a.Graphs)+len(a.SparseTensors) > 0
}

// cloneWithout clones a message except for some of its fields.
func cloneWithout[M proto.Message](m M, fields ...protoreflect.Name) M {
	from := m.ProtoReflect()
	some := from.New()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !slices.Contains(fields, f.Name()) {
			some.Set(f, v)
		}
		return true
	})
	some.SetUnknown(from.GetUnknown())
	return proto.Clone(some.Interface()).(M)
}

// spellStandard writes the domain of the ONNX operators as "" everywhere. The standard also allows
// "ai.onnx", but the checker and the reference evaluator reject it in nodes.
func (c *Copy) spellStandard() {
	c.Proto.OpsetImport = spellImports(c.Proto.OpsetImport)
	for _, f := range c.Proto.Functions {
		f.OpsetImport = spellImports(f.OpsetImport)
	}
	WalkNodes(c.Proto, func(n *onnxpb.NodeProto) {
		if n.GetDomain() == longStandard {
			n.Domain = nil
		}
	})
}

// longStandard is the longer name of the domain of the ONNX operators.
const longStandard = "ai.onnx"

// spellImports spells the standard's domain as "", once.
func spellImports(imports []*onnxpb.OperatorSetIdProto) []*onnxpb.OperatorSetIdProto {
	short := slices.ContainsFunc(imports, func(o *onnxpb.OperatorSetIdProto) bool { return o.GetDomain() == "" })
	return slices.DeleteFunc(imports, func(o *onnxpb.OperatorSetIdProto) bool {
		if o.GetDomain() != longStandard {
			return false
		}
		again := short
		o.Domain, short = new(""), true
		return again
	})
}

// Node returns the copy of a node, which may be changed. It must be called before the opset is
// raised: that replaces nodes.
func (c *Copy) Node(n *onnxpb.NodeProto) *onnxpb.NodeProto {
	made := c.nodes[n]
	if made == nil {
		made = proto.CloneOf(n)
		c.nodes[n] = made
		list := c.Proto.Graph.Node
		at := c.Original.Number(n) - 1 // unless nodes were added or removed
		if at >= len(list) || list[at] != n {
			at = slices.Index(list, n)
		}
		if at >= 0 {
			list[at] = made
		}
	}
	return made
}

// Own makes copies of the shared initializers: all tensors of the copy may be changed then.
func (c *Copy) Own() {
	for i, t := range c.Proto.Graph.Initializer {
		if v := c.Original.initializer(t); v != nil {
			made := proto.CloneOf(t)
			c.Proto.Graph.Initializer[i], c.originals[made], c.values[made] = made, t, v
		}
	}
}

// Reading returns a copy of n with renamed inputs; n itself if no name changes.
func Reading(n *onnxpb.NodeProto, rename func(name string) string) *onnxpb.NodeProto {
	made := n
	for i, name := range n.Input {
		if to := rename(name); to != name {
			if made == n {
				made = proto.CloneOf(n)
			}
			made.Input[i] = to
		}
	}
	return made
}

// WalkAllGraphs visits the main graph, its subgraphs and the subgraphs of functions.
func WalkAllGraphs(m *onnxpb.ModelProto, visit func(*onnxpb.GraphProto)) {
	WalkGraphs(m.Graph, visit)
	for _, f := range m.Functions {
		WalkSubgraphs(f.Node, visit)
	}
}

// Graphs lists the main graph of the copy, its subgraphs and the subgraphs of functions.
func (c *Copy) Graphs() []*onnxpb.GraphProto { return c.graphs }

// GraphNumber returns the position in Graphs of the copy of an original graph.
func (c *Copy) GraphNumber(g *onnxpb.GraphProto) int { return c.numbers[g] }

// OriginalTensor returns the original of a copied tensor: t itself if it is shared, nil if it is new.
func (c *Copy) OriginalTensor(t *onnxpb.TensorProto) *onnxpb.TensorProto {
	if c.Original.initializer(t) != nil {
		return t // shared
	}
	return c.originals[t]
}

// StripNotes removes the doc strings and the metadata of nodes and values, which no runtime reads: exporters put stack
// traces there. It must be called last: it replaces nodes.
func (c *Copy) StripNotes() {
	WalkGraphs(c.Proto.Graph, func(g *onnxpb.GraphProto) {
		for i, n := range g.Node {
			if n.DocString != nil || len(n.MetadataProps) > 0 {
				g.Node[i] = cloneShallow(n)
			}
		}
		for i, v := range g.ValueInfo {
			if v.DocString != nil || len(v.MetadataProps) > 0 {
				g.ValueInfo[i] = &onnxpb.ValueInfoProto{Name: v.Name, Type: v.Type}
			}
		}
	})
}

// cloneShallow copies a node without its notes. The copy shares inputs, outputs and attributes.
func cloneShallow(n *onnxpb.NodeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{
		Input: n.Input, Output: n.Output, Name: n.Name, OpType: n.OpType, Domain: n.Domain, Overload: n.Overload,
		Attribute: n.Attribute, DeviceConfigurations: n.DeviceConfigurations,
	}
}

// Copied is OriginalTensor for tensors that are not shared; for those it returns nil.
func (c *Copy) Copied(t *onnxpb.TensorProto) *onnxpb.TensorProto { return c.originals[t] }

// Value returns the original value whose content is t, a tensor of the copy. It is nil if t is neither
// an initializer nor in a Constant node.
func (c *Copy) Value(t *onnxpb.TensorProto) *Value {
	if v := c.Original.initializer(t); v != nil {
		return v
	}
	return c.values[t]
}

// Fill sets the content of a new tensor.
func (c *Copy) Fill(t *onnxpb.TensorProto, p *modelfile.Payload) {
	if c.contents == nil {
		c.contents = map[*onnxpb.TensorProto]*modelfile.Payload{}
	}
	c.contents[t] = p
}

// Content returns the content of a new tensor that Fill set, or nil.
func (c *Copy) Content(t *onnxpb.TensorProto) *modelfile.Payload { return c.contents[t] }

// Drop marks the copy of an original node for removal by Tidy.
func (c *Copy) Drop(n *onnxpb.NodeProto) { c.dropped[c.Node(n)] = true }

// Dropped reports whether a node of the copy is marked for removal.
func (c *Copy) Dropped(n *onnxpb.NodeProto) bool { return c.dropped[n] }

// AddBehind adds a new node after a node of the copy. Tidy inserts it.
func (c *Copy) AddBehind(n, added *onnxpb.NodeProto) { c.behind[n] = append(c.behind[n], added) }

// Behind lists the new nodes after a node of the copy.
func (c *Copy) Behind(n *onnxpb.NodeProto) []*onnxpb.NodeProto { return c.behind[n] }

// Tidy removes dropped nodes and the value_info of their outputs, and inserts the nodes
// that AddBehind added.
func (c *Copy) Tidy() {
	if len(c.dropped) == 0 && len(c.behind) == 0 {
		return
	}
	WalkAllGraphs(c.Proto, func(g *onnxpb.GraphProto) { c.tidy(&g.Node, &g.ValueInfo) })
	for _, f := range c.Proto.Functions {
		c.tidy(&f.Node, &f.ValueInfo)
	}
}

func (c *Copy) tidy(list *[]*onnxpb.NodeProto, infos *[]*onnxpb.ValueInfoProto) {
	var nodes []*onnxpb.NodeProto
	made := map[string]bool{}
	for _, n := range *list {
		if !c.dropped[n] {
			nodes = append(append(nodes, n), c.behind[n]...)
		}
	}
	for _, n := range nodes {
		for _, name := range n.Output {
			made[name] = true
		}
	}
	for _, n := range *list {
		if c.dropped[n] {
			*infos = slices.DeleteFunc(*infos, func(v *onnxpb.ValueInfoProto) bool {
				return slices.Contains(n.Output, v.GetName()) && !made[v.GetName()]
			})
		}
	}
	*list = nodes
}

// Sort sorts the nodes of all graphs and functions topologically.
func (c *Copy) Sort() {
	sort := func(nodes *[]*onnxpb.NodeProto) {
		if sorted, err := Ordered(*nodes); err == nil { // no error: New checked the original for cycles
			*nodes = sorted
		}
	}
	if !c.inOrder() {
		WalkGraphs(c.Proto.Graph, func(g *onnxpb.GraphProto) { sort(&g.Node) })
	}
	for _, f := range c.Proto.Functions {
		sort(&f.Node)
		WalkSubgraphs(f.Node, func(g *onnxpb.GraphProto) { sort(&g.Node) })
	}
}

// inOrder reports whether the nodes of the main graph are sorted topologically. For speed, it looks up only the names
// that new and changed nodes make and read; the others keep the order of the original. It returns
// false if the original was not sorted, or nodes have subgraphs.
func (c *Copy) inOrder() bool {
	if !c.Original.sorted {
		return false
	}
	nodes := c.Proto.Graph.Node
	maker, read, last := map[string]int{}, map[string]bool{}, 0
	for i, n := range nodes {
		if number := c.Original.Number(n); number > 0 {
			if number < last {
				return false
			}
			last = number
			continue
		}
		if slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return len(Subgraphs(a)) > 0 }) {
			return false
		}
		for _, name := range n.Output {
			maker[name] = i
		}
		for _, name := range n.Input {
			read[name] = true
		}
	}
	delete(maker, "")
	for i, n := range nodes {
		for _, name := range n.Output {
			if read[name] && name != "" {
				maker[name] = i
			}
		}
	}
	return inOrder(nodes, maker)
}
