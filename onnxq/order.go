package onnxq

import (
	"fmt"
	"slices"

	"onnxquant/internal/onnxpb"
)

// ordered returns the nodes in an order in which each reads only what was made
// before, as the standard wants. Nodes that are in order stay where they are;
// the others are preceded by what they need. A cycle is an error.
func ordered(nodes []*onnxpb.NodeProto) ([]*onnxpb.NodeProto, error) {
	maker := map[string]int{}
	for i, n := range nodes {
		for _, name := range n.Output {
			if name != "" {
				maker[name] = i
			}
		}
	}
	const (
		unseen = iota
		open   // what it needs is being put in order
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
		stack := []frame{{start, reads(nodes[start])}}
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
				return nil, fmt.Errorf("%s is part of a cycle, through %s", describe(nodes[i]), quote(name))
			default:
				state[i] = open
				stack = append(stack, frame{i, reads(nodes[i])})
			}
		}
	}
	return result, nil
}

// reads lists the values that a node reads, itself or in its subgraphs. Values
// of the subgraphs themselves may be among them; their names are not those of
// values outside.
func reads(n *onnxpb.NodeProto) []string {
	if !slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return len(subgraphs(a)) > 0 }) {
		return n.Input
	}
	return appendReads(nil, n)
}

func appendReads(names []string, n *onnxpb.NodeProto) []string {
	names = append(names, n.Input...)
	for _, a := range n.Attribute {
		for _, g := range subgraphs(a) {
			for _, inner := range g.Node {
				names = appendReads(names, inner)
			}
			for _, o := range g.Output {
				names = append(names, o.GetName())
			}
		}
	}
	return names
}
