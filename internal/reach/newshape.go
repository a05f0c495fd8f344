package reach

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// newShape returns the shape that a Reshape, Flatten, Squeeze or Unsqueeze gives to a
// tensor of shape old. It is not ok if the shape is not constant or the node is invalid.
func (w *walk) newShape(n *onnxpb.NodeProto, old []int64) (shape []int64, ok bool) {
	switch n.GetOpType() {
	case "Reshape":
		want, ok := w.ConstantInts(n, 1)
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
		if axes, ok := w.axes(n); ok {
			return squeezed(old, axes)
		}
	case "Unsqueeze":
		if axes, ok := w.axes(n); ok {
			return unsqueezed(old, axes)
		}
	}
	return nil, false
}

// axes returns the axes that a node names: in an attribute or, from opset 13, in an input.
// There are none if it names none.
func (w *walk) axes(n *onnxpb.NodeProto) (axes []int64, ok bool) {
	a := graph.Attribute(n, "axes")
	if a == nil && len(n.Input) > 1 {
		axes, ok = w.ConstantInts(n, 1)
	} else {
		axes, ok = a.GetInts(), true
	}
	return axes, ok && len(axes) <= shapes.MaxRank
}

// squeezed removes axes, or without any the axes of length 1.
func squeezed(old, axes []int64) (shape []int64, ok bool) {
	remove, ok := axisSet(axes, len(old))
	for i, d := range old {
		if !(remove[int64(i)] || len(axes) == 0 && d == 1) {
			shape = append(shape, d)
		}
	}
	return shape, ok
}

// unsqueezed adds axes of length 1, at positions of the new shape.
func unsqueezed(old, axes []int64) (shape []int64, ok bool) {
	rank := len(old) + len(axes)
	added, ok := axisSet(axes, rank)
	if !ok {
		return nil, false
	}
	for i := range int64(rank) {
		if added[i] {
			shape = append(shape, 1)
		} else {
			shape, old = append(shape, old[0]), old[1:]
		}
	}
	return shape, true
}

// axisSet is the set of some distinct axes of a tensor. Negative axes count from the end.
func axisSet(axes []int64, rank int) (set map[int64]bool, ok bool) {
	set = map[int64]bool{}
	for _, a := range axes {
		a = shapes.Axis(a, rank)
		if a < 0 || a >= int64(rank) || set[a] {
			return nil, false
		}
		set[a] = true
	}
	return set, true
}
