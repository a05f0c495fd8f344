// Package balance moves scales of channels from activations into weights. The model computes the same.
//
// For weights alone, as AWQ does: let a value be x·g, with a stored number g for each channel, read only by
// products with stored matrices. Then g can be divided by factors, and the rows of the matrices multiplied by
// them. Important channels then have larger weights, which lose less when they are rounded. [Find] returns
// the values of that kind, [Scale] a new graph with scaled tensors, and [Like] repeats on one model the scaling
// found in another.
//
// For activations, as cross-layer equalization and SmoothQuant do: [Regions] returns the activations that can be
// divided by factors together, through all operators that commute with factors, with the stored tensors that
// compensate them. [Apply] returns the scaled graph.
//
// Graphs are only read. The tensors of a new graph are computed when they are read; the caller must keep the
// original open.
package balance

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Group is a value whose channels can get factors.
type Group struct {
	Input    *graph.Value
	Channels int64
	Weights  []Part // are multiplied
	Divided  []Part // the first holds g; the others are biases added to x·g
}

// Part is a stored tensor. Channels lie Inner elements apart: elements i, i+Inner, …
// i+(Channels-1)·Inner are of channels 0, 1, … Channels-1, then the channels repeat.
//
// The weight of a convolution in groups has Each channels in a group of Group elements.
type Part struct {
	Value       *graph.Value
	Inner       int64
	Each, Group int64 // 0: there are no groups
}

// Channel is the channel of an element.
func (p Part) Channel(element, channels int64) int64 {
	if p.Group > 0 {
		return element/p.Group*p.Each + element/p.Inner%p.Each
	}
	return element / p.Inner % channels
}

// Find returns the groups of the main graph.
func Find(x *graph.Graph) (all []Group) {
	seen := map[*graph.Value]bool{}
	trained := graph.TrainedNames(x.File.Proto)
	for _, n := range x.File.Proto.Graph.Node {
		if !isProduct(n) {
			continue
		}
		v := x.Source(n, 0)
		if v == nil || seen[v] {
			continue
		}
		seen[v] = true
		f := finder{x, trained, &Group{Input: v}}
		if f.readers(v) && f.findScale(v) {
			all = append(all, *f.group)
		}
	}
	return all
}

type finder struct {
	*graph.Graph
	trained map[string]bool
	group   *Group
}

func isProduct(n *onnxpb.NodeProto) bool {
	op := n.GetOpType()
	return graph.IsStandard(n.GetDomain()) && (op == "MatMul" || op == "Gemm" && graph.IntAttribute(n, "transA") == 0)
}

// inside reports whether only nodes of the main graph read a value.
func (f finder) inside(v *graph.Value) bool {
	return v.Graph == f.File.Proto.Graph && !v.Output && len(v.Yields()) == 0 && len(v.Returned()) == 0 &&
		!slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return f.Home(u.Node).Graph != v.Graph })
}

// readOnce reports whether a value is a stored tensor of floats that one node reads, once.
func (f finder) readOnce(v *graph.Value) bool {
	return v != nil && v.Tensor != nil && dtype.DType(v.Tensor.GetDataType()).Float() && len(v.Uses) == 1 &&
		(!v.Input || v.MustBeInput) && !f.trained[v.Name] && f.inside(v)
}

// readers reports whether all readers of a value multiply it by stored matrices, and finds these.
func (f finder) readers(v *graph.Value) bool {
	if !f.inside(v) {
		return false
	}
	for _, u := range v.Uses {
		w := f.Source(u.Node, 1)
		if !isProduct(u.Node) || u.Input != 0 || !f.readOnce(w) || len(w.Tensor.Dims) != 2 {
			return false
		}
		p, k := Part{Value: w, Inner: w.Tensor.Dims[1]}, w.Tensor.Dims[0]
		if u.Node.GetOpType() == "Gemm" && graph.IntAttribute(u.Node, "transB") != 0 {
			p.Inner, k = 1, p.Inner
		}
		if f.group.Channels == 0 {
			f.group.Channels = k
		}
		if k != f.group.Channels || k == 0 {
			return false
		}
		f.group.Weights = append(f.group.Weights, p)
	}
	return true
}

// findScale reports whether a value is a product with a number for each channel, perhaps plus another
// one, and finds these.
func (f finder) findScale(v *graph.Value) bool {
	n := v.Node
	if n == nil {
		return false
	}
	if first, last := normalization(n); first > 0 {
		if f.Outputs(n)[0] != v || !f.divide(f.Source(n, first), 0) {
			return false
		}
		for i := first + 1; i <= last; i++ {
			if added := f.Source(n, i); added != nil && !f.divide(added, len(f.group.Divided)) {
				return false
			}
		}
		return true
	}
	op := n.GetOpType()
	if !graph.IsStandard(n.GetDomain()) || op != "Mul" && op != "Add" || len(n.Input) != 2 {
		return false
	}
	for i := range 2 {
		c, other := f.Source(n, i), f.Source(n, 1-i)
		if c == nil || c.Tensor == nil || other == nil || other.Tensor != nil {
			continue
		}
		if op == "Mul" {
			return f.divide(c, 0)
		}
		return len(other.Uses) == 1 && f.inside(other) && len(f.group.Divided) == 0 && f.divide(c, 0) && f.findScale(other)
	}
	return false
}

// normalization returns the numbers of the first and the last input of a normalization that scale or
// shift its output; 0 for other nodes.
func normalization(n *onnxpb.NodeProto) (first, last int) {
	switch n.GetOpType() {
	case "LayerNormalization":
		return 1, 2
	case "RMSNormalization", "SimplifiedLayerNormalization":
		return 1, 1
	case "SkipLayerNormalization":
		return 2, 3
	case "SkipSimplifiedLayerNormalization":
		return 2, 2
	}
	return 0, 0
}

// divide adds a stored tensor with a number for each channel to the tensors that are divided.
func (f finder) divide(v *graph.Value, at int) bool {
	if !f.readOnce(v) {
		return false
	}
	dims := v.Tensor.Dims
	last := len(dims) - 1
	if last < 0 || dims[last] != f.group.Channels || slices.ContainsFunc(dims[:last], func(d int64) bool { return d != 1 }) {
		return false
	}
	f.group.Divided = slices.Insert(f.group.Divided, at, Part{Value: v, Inner: 1})
	return true
}
