package actpairs

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// coarse reports whether the codes of an activation are too far apart. There are two cases. Either
// most values have the code of 0. Or the activation is a score of a Softmax, and a step between
// codes changes the result of the Softmax by a factor of e. Both happen behind a mask of large
// negative numbers, and with a few outliers.
func (m *marking) coarse(t *Tensor, scores map[*graph.Value]bool) bool {
	if isSoftmax(m.madeBy(t.Value)) {
		return false // small probabilities may become 0
	}
	own := t.root()
	if own.Stored != nil {
		return false
	}
	step := own.Codes.Step(own.Own.Scale)
	typical, known := m.opts.Ranges.TypicalOf(t.Value.Path, t.Value.Name)
	return known && typical < step/2 || step > 1 && scores[t.Value]
}

// maxMoves is the largest number of operators that move elements between a Softmax and the
// activation.
const maxMoves = 8

// moves are operators that only move elements.
var moves = []string{"Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}

// adds are operators that do not change the size of a step.
var adds = []string{"Add", "Clip", "Max", "Min", "Sub", "Where"}

// madeBy returns the node that computes the elements of a value, or nil.
func (m *marking) madeBy(v *graph.Value) *onnxpb.NodeProto {
	for range maxMoves {
		if v == nil || v.Node == nil || !slices.Contains(moves, v.Node.GetOpType()) {
			break
		}
		v = m.x.Source(v.Node, 0)
	}
	if v == nil {
		return nil
	}
	return v.Node
}

// scores returns the arguments of Softmax, and the terms of sums that are arguments of Softmax.
func (m *marking) scores() map[*graph.Value]bool {
	found := map[*graph.Value]bool{}
	for _, n := range slices.Backward(m.nodes) {
		op := n.GetOpType()
		on := (slices.Contains(moves, op) || slices.Contains(adds, op)) && slices.ContainsFunc(m.x.Outputs(n), func(v *graph.Value) bool { return found[v] })
		if on || isSoftmax(n) {
			for _, v := range m.x.Inputs(n) {
				found[v] = true
			}
		}
	}
	delete(found, nil)
	return found
}

func isSoftmax(n *onnxpb.NodeProto) bool {
	return n != nil && (n.GetOpType() == "Softmax" || n.GetOpType() == "LogSoftmax")
}
