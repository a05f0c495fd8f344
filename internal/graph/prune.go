package graph

import "onnxquant/internal/onnxpb"

// Only returns a model that computes some values of the main graph and nothing else: they are
// its outputs, and nodes and initializers that they do not need are left out. It shares all
// tensors and nodes with m, whose nodes are in an order in which they can run.
func Only(m *onnxpb.ModelProto, values []string) *onnxpb.ModelProto {
	needed := map[string]bool{}
	g := &onnxpb.GraphProto{Name: m.Graph.Name, Input: m.Graph.Input}
	for _, v := range values {
		needed[v] = true
		g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: &v})
	}
	var nodes []*onnxpb.NodeProto // the last one first
	for i := len(m.Graph.Node) - 1; i >= 0; i-- {
		n := m.Graph.Node[i]
		for _, made := range n.Output {
			if needed[made] {
				nodes = append(nodes, n)
				needRead(needed, n)
				break
			}
		}
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		g.Node = append(g.Node, nodes[i])
	}
	for _, t := range m.Graph.Initializer {
		if needed[t.GetName()] {
			g.Initializer = append(g.Initializer, t)
		}
	}
	for _, t := range m.Graph.SparseInitializer {
		if needed[t.GetValues().GetName()] {
			g.SparseInitializer = append(g.SparseInitializer, t)
		}
	}
	return &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Functions: m.Functions, Graph: g}
}

// needRead marks what a node and its subgraphs read. Names inside of subgraphs are marked, too,
// which does no harm.
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
