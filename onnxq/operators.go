package onnxq

import (
	"maps"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Operators lists the operators of the model, including subgraphs and functions, sorted.
func (m *Model) Operators() []string {
	found := map[string]bool{}
	graph.WalkNodes(m.graph.File.Proto, func(n *onnxpb.NodeProto) { found[n.GetOpType()] = true })
	return slices.Sorted(maps.Keys(found))
}
