package reach

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// NewShape returns the shape that an Identity, Reshape, Flatten, Squeeze or Unsqueeze gives to a
// tensor of shape old. It is not ok if the shape is not constant or the node is invalid.
func NewShape(x *graph.Graph, n *onnxpb.NodeProto, old []int64) (shape []int64, ok bool) {
	switch n.GetOpType() {
	case "Identity":
		return old, true
	case "Reshape":
		want, ok := x.ConstantInts(n, 1)
		if a := graph.Attribute(n, "shape"); a != nil && len(n.Input) == 1 { // before opset 5
			want, ok = a.Ints, len(a.Ints) <= shapes.MaxRank
		}
		if !ok {
			return nil, false
		}
		return shapes.Reshape(want, old, graph.IntAttribute(n, "allowzero") != 0)
	case "Flatten":
		axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 1), len(old))
		if axis < 0 || axis > int64(len(old)) {
			return nil, false
		}
		return []int64{shapes.Count(old[:axis]), shapes.Count(old[axis:])}, true
	case "Squeeze":
		if axes, ok := axesOf(x, n); ok {
			return shapes.Squeeze(old, axes)
		}
	case "Unsqueeze":
		if axes, ok := axesOf(x, n); ok {
			return shapes.Unsqueeze(old, axes)
		}
	}
	return nil, false
}

// axesOf returns the axes that a node names: in an attribute or, from opset 13, in an input. They are
// nil if the node names none.
func axesOf(x *graph.Graph, n *onnxpb.NodeProto) (axes []int64, ok bool) {
	a := graph.Attribute(n, "axes")
	if a == nil && len(n.Input) > 1 {
		axes, ok = x.ConstantInts(n, 1)
	} else {
		axes, ok = a.GetInts(), true
	}
	return axes, ok && len(axes) <= shapes.MaxRank
}
