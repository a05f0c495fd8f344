package discover

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/spec"
)

// Codes of MLX come with mins: a value is code · scale - min of the block. No operator of ONNX Runtime has such a weight. A
// MatMulNBits multiplies by code · scale; the sums of each block of the other factor, times the mins, are subtracted from the product.

// withMins chooses the mins that the codes of the content came with, if the weight gets its codes.
func (d *Decision) withMins(c Choice) Choice {
	g := d.Given
	if g == nil || g.Mins == nil {
		return c
	}
	k := c.Operand.View[c.Operand.Axis]
	block := int64(c.Block)
	if c.Block == spec.PerChannel {
		block = k
	}
	c.Mins = d.DType == dtype.Float32 && c.Format == g.Format && !c.ZeroPoint && block == g.Block && k%block == 0 && c.Operand.Axis == g.Axis && !c.Target.Tables(c.Format)
	return c
}

// lostMins reports whether a selected weight was to have the codes of its content, and cannot have the mins that they came with.
// Without mins, the format of these codes is no reason to choose it.
func (d *Decision) lostMins() bool {
	return d.Selected && d.Given != nil && d.Given.Mins != nil && d.Override != noOverride && !d.Choice.Mins
}

// findNBits is FindNBits, also for weights with mins.
func (d *Decision) findNBits(x *graph.Graph, s *graph.Shapes, c Choice) (f NBits, why string) {
	f, why = FindNBits(x, d.tensor(), c)
	if why == "" && c.Mins {
		f.Rank, why = d.rankForMins(x, s)
	}
	return f, why
}

// rankForMins returns the number of axes of the factors beside a weight with mins. Why says that it is not known, or not one.
func (d *Decision) rankForMins(x *graph.Graph, s *graph.Shapes) (rank int, why string) {
	for _, l := range d.Reach.Leaves {
		if l.Node.GetOpType() == "Gather" {
			continue
		}
		dims := s.Of(x.Source(l.Node, 0))
		switch {
		case len(dims) < 1:
			return 0, "its codes have mins, and the shape of the other factor is not known"
		case rank > 0 && rank != len(dims):
			return 0, "its codes have mins, and the shapes of the other factors differ"
		}
		rank = len(dims)
	}
	return rank, ""
}
