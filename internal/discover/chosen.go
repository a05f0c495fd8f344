package discover

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/operands"
	"onnxquant/internal/reach"
)

// alongColumns is why products with chosen matrices have no data, unless alongSums turns the blocks.
const alongColumns = "its blocks run along the columns of the matrices that a Gather takes, and calibration is for blocks along the sum"

// chosen returns the layer of a stack [N, rows, columns] out of which a Gather takes matrices, such as those of experts, for a MatMul. It
// has no node if the Gather looks up rows.
func (d *Decision) chosen(c Choice, x *graph.Graph, l reach.Leaf) (one Layer, why string) {
	p, ok := l.Taken(x)
	if !ok || len(d.Shape) != 3 {
		return Layer{}, ""
	}
	axis := p.SumAxis()
	if !l.Layout.Is(d.Shape) || d.Shape[0] > mostExperts || p.Squeezed {
		return Layer{}, "calibration is for matrices that a Gather takes out of a stack as it is stored"
	}
	if len(c.Operand.View) != 3 || c.Operand.Axis != axis {
		why = alongColumns
	}
	o := operands.Chosen{N: int(d.Shape[0]), Width: int(d.Shape[axis]), Columns: p.Input == 0, Coordinates: l.Node.GetOpType() == "GatherND"}
	return Layer{Operation: o, Node: p.Node, Input: x.Source(p.Node, 1-p.Input), Second: x.Source(l.Node, 1)}, why
}

// alongSums lets blocks of a stack run along the sum of the products, if data find its codes then.
func (d *Decision) alongSums(c Choice, x *graph.Graph, opts Options) Choice {
	if !opts.Calibrated || !c.Algorithm.Calibrated() || d.Override.Axis != nil || len(d.Shape) != 3 || !slices.Equal(c.Operand.View, d.Shape) {
		return c
	}
	along := c
	for _, l := range d.Reach.Leaves {
		p, ok := l.Taken(x)
		if !ok {
			return c
		}
		along.Operand.Axis = p.SumAxis()
	}
	if along.Operand.Axis == c.Operand.Axis {
		return c
	}
	if layers, _ := d.layersOf(along, x, opts.Observed); layers == nil {
		return c
	}
	return along
}

// HasExperts reports whether a tensor has matrices of experts: a MoE reads it, or a Gather takes some of several for a MatMul.
func (d *Decision) HasExperts(x *graph.Graph) bool {
	if slices.ContainsFunc(d.Value.Uses, func(u graph.Use) bool { return IsMoE(u.Node) }) {
		return true
	}
	return len(d.Shape) == 3 && d.Shape[0] > 1 && slices.ContainsFunc(reach.Of(x, d.Value, d.Shape).Leaves, func(l reach.Leaf) bool {
		_, ok := l.Taken(x)
		return ok
	})
}
