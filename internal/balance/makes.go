package balance

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// made follows the factors of an activation into the node that makes it: a stored tensor is divided by them, or an
// input of the node has them, too. It returns false if neither is so.
func (g *growing) made(v *graph.Value, axis Axis) bool {
	n := v.Node
	if n == nil {
		return false
	}
	first := g.x.Outputs(n)[0] == v
	if from, last := normalization(n); from > 0 {
		return first && g.normalized(n, from, last, v, axis)
	}
	if !graph.IsStandard(n.GetDomain()) || !first && n.GetOpType() != "Split" {
		return false
	}
	input, last := func(i int) *graph.Value { return g.x.Source(n, i) }, Axis{Back: -1}
	switch op := n.GetOpType(); op {
	case "Add", "Sub", "Sum", "Max", "Min", "Mean":
		return g.summed(n, 0, axis, v)
	case "Concat":
		return g.besides(n, v, axis) && g.summed(n, 0, axis, v)
	case "Where":
		return g.summed(n, 1, axis, v)
	case "Mul":
		for i := range 2 {
			if g.divide(n, input(i), axis, v) {
				return true
			}
		}
		i := g.scaled(n)
		return g.keep(input(1-i)) && g.join(input(i), axis)
	case "Div":
		return g.keep(input(1)) && g.join(input(0), axis)
	case "PRelu":
		return g.keep(input(1)) && g.join(input(0), axis)
	case "Conv", "ConvTranspose":
		w := input(1)
		if w == nil || w.Tensor == nil {
			return false
		}
		rank := len(w.Tensor.GetDims())
		side := Axis{Back: -rank}
		if op == "ConvTranspose" {
			if side.Back++; graph.IntAttributeOr(n, "group", 1) != 1 {
				return false
			}
		}
		return rank > 2 && axis == Axis{Back: 1 - rank} && g.divide(n, w, side, v) && (input(2) == nil || g.divide(n, input(2), last, v))
	case "MatMul":
		w := input(1)
		switch {
		case w == nil || axis != last:
			return false
		case w.Tensor == nil:
			return g.keep(input(0)) && g.join(w, axis)
		}
		return len(w.Tensor.GetDims()) > 1 && g.divide(n, w, last, v)
	case "Gemm":
		side := last
		if graph.IntAttribute(n, "transB") != 0 {
			side.Back = -2
		}
		return axis == last && g.divide(n, input(1), side, v) && (input(2) == nil || g.added(n, input(2), last, v))
	case "BatchNormalization", "InstanceNormalization":
		return axis == g.second(v) && graph.IntAttribute(n, "training_mode") == 0 && g.divide(n, input(1), last, v) && g.divide(n, input(2), last, v)
	case "Split":
		return g.besides(n, v, axis) && g.join(input(0), axis)
	}
	return g.unread(n, axis)
}

// normalized divides what a normalization multiplies by and adds.
func (g *growing) normalized(n *onnxpb.NodeProto, from, last int, v *graph.Value, axis Axis) bool {
	if axis != (Axis{Back: -1}) {
		return false
	}
	for i := from; i <= last; i++ {
		if w := g.x.Source(n, i); (w != nil || i == from) && !g.divide(n, w, axis, v) {
			return false
		}
	}
	return true
}

// unread joins the input of a node with the factors that the node hands on to its output.
func (g *growing) unread(n *onnxpb.NodeProto, axis Axis) bool {
	v := g.x.Source(n, 0)
	if v == nil {
		return false
	}
	if own, has := g.axes[v]; has {
		to, ok := g.through(n, own)
		return ok && to == axis
	}
	for back := -1; back >= -max(g.rank(v), 1); back-- {
		for _, from := range []Axis{{back, false}, {back, true}} {
			if to, ok := g.through(n, from); ok && to == axis {
				return g.join(v, from)
			}
		}
	}
	return false
}

// scaled chooses the factor of a Mul that gets the factors of channels: one that has them already, or one that leads
// back to a stored tensor.
func (g *growing) scaled(n *onnxpb.NodeProto) int {
	for i := range 2 {
		if _, has := g.axes[g.x.Source(n, i)]; has {
			return i
		}
	}
	for i := range 2 {
		if g.leadsBack(g.x.Source(n, i)) {
			return i
		}
	}
	return 0
}

// leadsBack reports whether only operators that hand factors on are between a value and a product with a stored tensor.
func (g *growing) leadsBack(v *graph.Value) bool {
	for range 32 {
		if v == nil || v.Node == nil || v.Tensor != nil {
			return false
		}
		if start, _, _ := g.begin(v.Node); start == v {
			return true
		}
		if !homogeneous[v.Node.GetOpType()] && v.Node.GetOpType() != "Add" {
			return false
		}
		v = g.x.Source(v.Node, 0)
	}
	return false
}
