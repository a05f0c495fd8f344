package half

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// reduces are the operators that sum squares, or what may be squares.
var reduces = map[string]bool{"ReduceMean": true, "ReduceSum": true, "ReduceSumSquare": true, "ReduceL2": true}

const reasonSquares = "is part of a mean of squares, which overflows float16"

// keepSquares keeps the squares of normalizations, and the nodes between their mean and the root, in
// float32. x² overflows float16 from 256 on, and the epsilon vanishes.
func (c *choice) keepSquares() {
	graph.WalkNodes(c.x.File.Proto, func(n *onnxpb.NodeProto) {
		if !reduces[n.GetOpType()] || !graph.IsStandard(n.GetDomain()) {
			return
		}
		v := c.x.Source(n, 0)
		if v == nil || !c.types[v].float() {
			return
		}
		square := v.Node
		switch {
		case n.GetOpType() == "ReduceSumSquare" || n.GetOpType() == "ReduceL2":
		case square != nil && (square.GetOpType() == "Pow" || square.GetOpType() == "Mul" && c.x.Source(square, 0) == c.x.Source(square, 1)):
			c.keep(square, reasonSquares)
		default:
			return
		}
		c.keep(n, reasonSquares)
		v = c.x.Made(n)
		if scale := soleReader(v); scale != nil && n.GetOpType() != "ReduceMean" && (scale.GetOpType() == "Div" || scale.GetOpType() == "Mul") {
			c.keep(scale, reasonSquares) // a mean as a sum and a quotient
			v = c.x.Made(scale)
		}
		c.keepAfter(v)
	})
}

// soleReader returns the only node that reads a value, or nil.
func soleReader(v *graph.Value) *onnxpb.NodeProto {
	if v == nil || len(v.Uses) != 1 {
		return nil
	}
	return v.Uses[0].Node
}

// keepAfter keeps what follows a mean of squares up to the root, or to the operator that takes it.
func (c *choice) keepAfter(v *graph.Value) {
	for n := soleReader(v); n != nil; n = soleReader(v) {
		switch n.GetOpType() {
		case "Add", "Sqrt", "Reciprocal", "Clip", "Reshape", "Squeeze":
		case "BatchNormalization": // its variance is made at run time
			c.keep(n, reasonSquares)
			return
		default:
			return
		}
		c.keep(n, reasonSquares)
		v = c.x.Made(n)
	}
}
