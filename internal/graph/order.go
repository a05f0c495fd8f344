package graph

import (
	"fmt"
	"slices"

	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Ordered sorts nodes topologically, as ONNX requires: every node comes after the nodes whose outputs
// it reads. Nodes already in order keep their order. A cycle is an error.
func Ordered(nodes []*onnxpb.NodeProto) ([]*onnxpb.NodeProto, error) {
	maker := make(map[string]int, len(nodes))
	for i, n := range nodes {
		for _, name := range n.Output {
			if name != "" {
				maker[name] = i
			}
		}
	}
	if inOrder(nodes, maker) {
		return slices.Clone(nodes), nil
	}
	const (
		unseen = iota
		open   // on the stack: its inputs are being sorted
		done
	)
	state := make([]int, len(nodes))
	result := make([]*onnxpb.NodeProto, 0, len(nodes))
	type frame struct {
		node  int
		needs []string
	}
	for start := range nodes {
		if state[start] != unseen {
			continue
		}
		stack := []frame{{start, Reads(nodes[start])}}
		state[start] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.needs) == 0 {
				state[top.node] = done
				result = append(result, nodes[top.node])
				stack = stack[:len(stack)-1]
				continue
			}
			name := top.needs[0]
			top.needs = top.needs[1:]
			i, ok := maker[name]
			switch {
			case !ok || state[i] == done:
			case state[i] == open:
				return nil, fmt.Errorf("%s is part of a cycle, through %s", Describe(nodes[i]), msg.Quote(name))
			default:
				state[i] = open
				stack = append(stack, frame{i, Reads(nodes[i])})
			}
		}
	}
	return result, nil
}

// inOrder reports whether the nodes are sorted topologically, as in most models.
func inOrder(nodes []*onnxpb.NodeProto, maker map[string]int) bool {
	for i, n := range nodes {
		for _, name := range Reads(n) {
			if made, ok := maker[name]; ok && made >= i {
				return false
			}
		}
	}
	return true
}

// Reads lists the names that a node reads, itself or in its subgraphs.
func Reads(n *onnxpb.NodeProto) []string {
	names := n.Input[:len(n.Input):len(n.Input)]
	for _, a := range n.Attribute {
		for _, g := range Subgraphs(a) {
			names = append(names, captured(g)...)
		}
	}
	return names
}

// captured lists the names that a subgraph reads from outside. A name defined inside hides the same
// name outside, even if that is an output of the node that owns the subgraph.
func captured(g *onnxpb.GraphProto) (names []string) {
	own := map[string]bool{}
	for _, in := range g.Input {
		own[in.GetName()] = true
	}
	for _, t := range g.Initializer {
		own[t.GetName()] = true
	}
	for _, t := range g.SparseInitializer {
		own[t.GetValues().GetName()] = true
	}
	for _, n := range g.Node {
		for _, name := range n.Output {
			own[name] = true
		}
		names = append(names, Reads(n)...)
	}
	for _, o := range g.Output {
		names = append(names, o.GetName())
	}
	return slices.DeleteFunc(names, func(name string) bool { return own[name] })
}
