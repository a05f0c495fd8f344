package graph

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Copy is a copy of a model's structure, made to be changed. The original stays as it is,
// and its nodes, tensors and graphs lead to those of the copy.
type Copy struct {
	Proto    *onnxpb.ModelProto
	Original *Graph
	Names    *Names // of the model; may grow

	nodes     map[*onnxpb.NodeProto]*onnxpb.NodeProto     // original → copy
	originals map[*onnxpb.TensorProto]*onnxpb.TensorProto // copy → original
	values    map[*onnxpb.TensorProto]*Value              // tensor of the copy → value of the original
	numbers   map[*onnxpb.GraphProto]int                  // original → position in graphs
	graphs    []*onnxpb.GraphProto                        // of the copy

	dropped map[*onnxpb.NodeProto]bool                // nodes of the copy to remove
	behind  map[*onnxpb.NodeProto][]*onnxpb.NodeProto // node of the copy → new nodes to insert after it
}

// Copy copies the structure of the model.
func (x *Graph) Copy() *Copy {
	c := &Copy{
		Proto:     proto.Clone(x.File.Proto).(*onnxpb.ModelProto),
		Original:  x,
		Names:     x.NewNames(),
		nodes:     make(map[*onnxpb.NodeProto]*onnxpb.NodeProto, len(x.Home)),
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
		copies[t], c.originals[tensors[i]] = tensors[i], t
		i++
	}
	for _, v := range x.Values {
		c.values[copies[v.Tensor]] = v
	}
	nodes := make([]*onnxpb.NodeProto, 0, len(x.Home))
	WalkNodes(c.Proto, func(n *onnxpb.NodeProto) { nodes = append(nodes, n) })
	i = 0
	WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		c.nodes[n] = nodes[i]
		i++
	})
	WalkAllGraphs(c.Proto, func(g *onnxpb.GraphProto) { c.graphs = append(c.graphs, g) })
	WalkAllGraphs(x.File.Proto, func(g *onnxpb.GraphProto) { c.numbers[g] = len(c.numbers) })
	c.spellStandard()
	return c
}

// spellStandard spells the domain of the ONNX operators as "" everywhere. The standard allows
// "ai.onnx" too, but the checker and the reference evaluator do not know nodes of it.
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

// Node returns the copy of a node.
func (c *Copy) Node(n *onnxpb.NodeProto) *onnxpb.NodeProto { return c.nodes[n] }

// WalkAllGraphs visits the main graph, its subgraphs and those of functions.
func WalkAllGraphs(m *onnxpb.ModelProto, visit func(*onnxpb.GraphProto)) {
	WalkGraphs(m.Graph, visit)
	for _, f := range m.Functions {
		WalkSubgraphs(f.Node, visit)
	}
}

// Graphs lists the main graph of the copy, its subgraphs and those of functions.
func (c *Copy) Graphs() []*onnxpb.GraphProto { return c.graphs }

// GraphNumber returns the position in Graphs of the copy of an original graph.
func (c *Copy) GraphNumber(g *onnxpb.GraphProto) int { return c.numbers[g] }

// OriginalTensor returns the tensor that t is a copy of, nil if t is new.
func (c *Copy) OriginalTensor(t *onnxpb.TensorProto) *onnxpb.TensorProto { return c.originals[t] }

// Value returns the original's value whose content is a copy's tensor t. It is nil if t is
// neither an initializer nor in a Constant node.
func (c *Copy) Value(t *onnxpb.TensorProto) *Value { return c.values[t] }

// Drop marks the copy of an original node for removal by Tidy.
func (c *Copy) Drop(n *onnxpb.NodeProto) { c.dropped[c.nodes[n]] = true }

// Dropped reports whether a node of the copy is marked for removal.
func (c *Copy) Dropped(n *onnxpb.NodeProto) bool { return c.dropped[n] }

// AddBehind adds a new node after a node of the copy. Tidy inserts it.
func (c *Copy) AddBehind(n, added *onnxpb.NodeProto) { c.behind[n] = append(c.behind[n], added) }

// Behind lists the new nodes after a node of the copy.
func (c *Copy) Behind(n *onnxpb.NodeProto) []*onnxpb.NodeProto { return c.behind[n] }

// Tidy removes dropped nodes and the value_info of their outputs, and inserts the nodes
// that AddBehind added.
func (c *Copy) Tidy() {
	if len(c.dropped) > 0 || len(c.behind) > 0 {
		WalkGraphs(c.Proto.Graph, c.tidy)
	}
}

func (c *Copy) tidy(g *onnxpb.GraphProto) {
	var nodes []*onnxpb.NodeProto
	made := map[string]bool{}
	for _, n := range g.Node {
		if !c.dropped[n] {
			nodes = append(append(nodes, n), c.behind[n]...)
		}
	}
	for _, n := range nodes {
		for _, name := range n.Output {
			made[name] = true
		}
	}
	for _, n := range g.Node {
		if c.dropped[n] {
			g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool {
				return slices.Contains(n.Output, v.GetName()) && !made[v.GetName()]
			})
		}
	}
	g.Node = nodes
}

// Sort sorts the nodes of all graphs topologically.
func (c *Copy) Sort() {
	WalkGraphs(c.Proto.Graph, func(g *onnxpb.GraphProto) {
		if nodes, err := Ordered(g.Node); err == nil { // no error: New checked the original for cycles
			g.Node = nodes
		}
	})
}
