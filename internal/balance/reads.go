package balance

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// read follows the factors of an activation into a node that reads it: a stored tensor compensates them, or the
// output of the node has them, too. It returns false if neither is so.
func (g *growing) read(v *graph.Value, axis Axis, u graph.Use) bool {
	n := u.Node
	if !graph.IsStandard(n.GetDomain()) || len(g.x.Outputs(n)) == 0 {
		return false
	}
	out, input := g.x.Outputs(n)[0], func(i int) *graph.Value { return g.x.Source(n, i) }
	switch op := n.GetOpType(); op {
	case "Shape", "Size":
		return true
	case "Add", "Sub", "Sum", "Max", "Min", "Mean":
		return g.join(out, axis) // and the other inputs in its turn
	case "Where":
		return u.Input > 0 && g.join(out, axis)
	case "Concat":
		return g.besides(n, v, axis) && g.join(out, axis)
	case "Mul":
		other := input(1 - u.Input&1)
		if p, ok := g.part(other, axis); ok {
			return g.multiply(n, p, v)
		}
		return other != v && g.keep(other) && g.join(out, axis)
	case "Div":
		return u.Input == 0 && g.keep(input(1)) && g.join(out, axis)
	case "PRelu":
		return u.Input == 0 && g.keep(input(1)) && g.join(out, axis)
	case "Conv", "ConvTranspose":
		p, ok := g.convolved(n, axis)
		return u.Input == 0 && ok && g.multiply(n, p, v)
	case "MatMul":
		switch w := input(1); {
		case u.Input == 1:
			return axis == Axis{Back: -1} && g.keep(input(0)) && g.join(out, axis)
		case axis.Back != -1 || w == nil || w.Tensor == nil || len(w.Tensor.GetDims()) < 2:
			return false
		default:
			p, ok := g.factor(w, Axis{-2, axis.Spread})
			return ok && g.multiply(n, p, v)
		}
	case "Gemm":
		switch w := input(1); {
		case u.Input == 2:
			return g.join(out, axis)
		case u.Input != 0 || axis.Back != -1 || graph.IntAttribute(n, "transA") != 0 || w == nil || w.Tensor == nil || len(w.Tensor.GetDims()) != 2:
			return false
		default:
			side := Axis{-2, axis.Spread}
			if graph.IntAttribute(n, "transB") != 0 {
				side.Back = -1
			}
			p, ok := g.factor(w, side)
			return ok && g.multiply(n, p, v)
		}
	case "BatchNormalization":
		scale, ok := g.part(input(1), Axis{Back: -1})
		mean, too := g.part(input(3), Axis{Back: -1})
		if !ok || !too || u.Input != 0 || g.second(v) != axis || graph.IntAttribute(n, "training_mode") != 0 {
			return false
		}
		g.region.Divided = append(g.region.Divided, mean)
		return g.multiply(n, scale, v)
	case "Split":
		return u.Input == 0 && g.besides(n, v, axis) &&
			!slices.ContainsFunc(g.x.Outputs(n), func(w *graph.Value) bool { return w != nil && !g.join(w, axis) })
	}
	to, ok := g.through(n, axis)
	return u.Input == 0 && ok && g.join(out, to)
}

// factor is like part for a matrix that an activation is multiplied by: there, the channels may repeat.
func (g *growing) factor(w *graph.Value, axis Axis) (Part, bool) {
	if p, ok := g.part(w, axis); ok || axis.Spread || !g.isPart(w) {
		return p, ok
	}
	inner := axis.Of(w.Tensor.GetDims(), g.region.Channels)
	return Part{Value: w, Inner: inner}, inner > 0
}

// convolved describes the weight of a convolution whose input has the factors.
func (g *growing) convolved(n *onnxpb.NodeProto, axis Axis) (Part, bool) {
	w := g.x.Source(n, 1)
	if w == nil || w.Tensor == nil {
		return Part{}, false
	}
	dims := w.Tensor.GetDims()
	rank, groups := len(dims), graph.IntAttributeOr(n, "group", 1)
	if rank < 3 || (axis != Axis{Back: 1 - rank}) || groups < 1 {
		return Part{}, false
	}
	if n.GetOpType() == "ConvTranspose" {
		return g.part(w, Axis{Back: -rank})
	}
	if groups == 1 {
		return g.part(w, Axis{Back: 1 - rank})
	}
	if !g.isPart(w) || dims[0]%groups != 0 || dims[1]*groups != g.region.Channels {
		return Part{}, false
	}
	inner := int64(1)
	for _, d := range dims[2:] {
		inner *= d
	}
	return Part{Value: w, Inner: inner, Each: dims[1], Group: dims[0] / groups * dims[1] * inner}, true
}

// second is the axis 1 of an activation.
func (r *regions) second(v *graph.Value) Axis { return Axis{Back: 1 - r.rank(v)} }

// besides reports whether a node works along another axis than the channels of a value that it reads or makes.
func (r *regions) besides(n *onnxpb.NodeProto, v *graph.Value, axis Axis) bool {
	at := int(graph.IntAttribute(n, "axis"))
	if rank := r.rank(v); at >= 0 {
		if at -= rank; at >= 0 {
			return false
		}
	}
	return at != axis.Back && !axis.Spread
}
