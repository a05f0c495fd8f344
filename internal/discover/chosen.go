package discover

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/operands"
	"onnxquant/internal/reach"
)

// chosen returns the layer of a stack [N, rows, columns] out of which a Gather takes matrices, such as those of experts, for a MatMul. It
// has no node if the Gather looks up rows.
func (d *Decision) chosen(c Choice, x *graph.Graph, l reach.Leaf) (Layer, string) {
	use, turned, ok := chosenFor(x, l)
	if !ok || len(d.Shape) != 3 {
		return Layer{}, ""
	}
	first := use.Input == 0
	axis := sumOf(use, turned)
	switch {
	case !l.Layout.Is(d.Shape) || d.Shape[0] > mostExperts:
		return Layer{}, "calibration is for matrices that a Gather takes out of a stack as it is stored"
	case len(c.Operand.View) != 3 || c.Operand.Axis != axis:
		return Layer{}, "its blocks run along the columns of the matrices that a Gather takes, and calibration is for blocks along the sum"
	}
	o := operands.Chosen{N: int(d.Shape[0]), Width: int(d.Shape[axis]), Columns: first, Coordinates: l.Node.GetOpType() == "GatherND"}
	return Layer{Operation: o, Node: use.Node, Input: x.Source(use.Node, 1-use.Input), Second: x.Source(l.Node, 1)}, ""
}

// sumOf is the axis of a stack over which a product sums.
func sumOf(use graph.Use, turned bool) int {
	if (use.Input == 0) == turned {
		return 1
	}
	return 2
}

// alongSums lets blocks of a stack run along the sum of the products, if data are to find its codes.
func (d *Decision) alongSums(c Choice, x *graph.Graph, opts Options) Choice {
	if !opts.Calibrated || !c.Algorithm.Calibrated() || d.Override.Axis != nil || len(d.Shape) != 3 || !slices.Equal(c.Operand.View, d.Shape) {
		return c
	}
	for _, l := range d.Reach.Leaves {
		use, turned, ok := chosenFor(x, l)
		if !ok || !l.Layout.Is(d.Shape) {
			return c
		}
		c.Operand.Axis = sumOf(use, turned)
	}
	return c
}

// chosenFor returns the MatMul for which a Gather takes whole matrices, perhaps turned by a Transpose.
func chosenFor(x *graph.Graph, l reach.Leaf) (use graph.Use, turned, ok bool) {
	n := l.Node
	gather := n.GetOpType() == "Gather" || n.GetOpType() == "GatherND"
	if !gather || !graph.IsStandard(n.GetDomain()) || l.Input != 0 || graph.IntAttribute(n, "axis") != 0 || graph.IntAttribute(n, "batch_dims") != 0 {
		return use, false, false
	}
	for range 2 {
		made := x.Made(n)
		if made == nil || made.Output || len(made.Uses) != 1 {
			return use, false, false
		}
		use = made.Uses[0]
		switch n = use.Node; {
		case !graph.IsStandard(n.GetDomain()):
			return use, false, false
		case n.GetOpType() == "MatMul":
			return use, turned, true
		case n.GetOpType() != "Transpose" || turned:
			return use, false, false
		}
		turned = true
		perm := graph.Attribute(n, "perm").GetInts()
		last := int64(len(perm)) - 1
		if last < 1 || perm[last] != last-1 || perm[last-1] != last || !slices.IsSorted(perm[:last-1]) {
			return use, false, false
		}
	}
	return use, false, false
}
