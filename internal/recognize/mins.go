package recognize

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
)

// withMins adds the mins of a weight that a node decodes internally, if a Sub behind the node applies them. Package form has the
// nodes.
func (f *Recognizer) withMins(w *Weight, n *onnxpb.NodeProto) *Weight {
	made := f.Graph.Made(n)
	if w.Constant == nil || made == nil || len(made.Uses) != 1 || made.Output || made.Uses[0].Input != 0 || !graph.IsOperator(made.Uses[0].Node, "Sub") {
		return w
	}
	end, d, shape := made.Uses[0].Node, *w.Constant.Decoder, w.Constant.Values.Shape
	last := int64(len(shape) - 1)
	if d.Axis != last || d.Block < 1 || shape[last]%d.Block != 0 || f.Graph.Home(end) != f.Graph.Home(n) {
		return w
	}
	mins := f.minsOfSums(n, end, shape[last], d.Block)
	if n.GetOpType() == "GatherBlockQuantized" {
		mins = f.minsOfRows(n, end, shape[last], d.Block)
	}
	if mins == nil || !slices.Equal(mins.Values.Shape, []int64{w.Constant.Values.Size() / shape[last], shape[last] / d.Block}) || mins.Values.DType != w.Constant.Values.DType {
		return w
	}
	by, ok := lazy.MapBlocks(shape, mins.Values.Shape, last, d.Block)
	if !ok {
		return w
	}
	d.Form, d.Mins = d.Form+"+Sub", mins.Source
	w.Constant = &Constant{Values: w.Constant.Values.Minus(mins.Values, by), Source: w.Constant.Source, Decoder: &d}
	w.Ends, w.Bytes = []*onnxpb.NodeProto{end}, 0
	w.describe(&d)
	return w
}

// maker returns the node that makes input i of n, if it is of an operator of ONNX. Read by n alone, unless shared.
func (f *Recognizer) maker(n *onnxpb.NodeProto, i int, op string, shared bool) *onnxpb.NodeProto {
	v := f.Graph.Source(n, i)
	if v == nil || v.Node == nil || !graph.IsOperator(v.Node, op) || v.Output || !shared && len(v.Uses) != 1 {
		return nil
	}
	return v.Node
}

// minsOfSums finds the mins that the sums of blocks of the factor of a MatMulNBits are multiplied by.
func (f *Recognizer) minsOfSums(n, end *onnxpb.NodeProto, k, block int64) *Constant {
	product := f.maker(end, 1, "MatMul", false)
	if product == nil {
		return nil
	}
	sums, turn := f.maker(product, 0, "ReduceSum", true), f.maker(product, 1, "Transpose", false)
	if sums == nil || turn == nil || graph.IntAttributeOr(sums, "keepdims", 1) != 0 {
		return nil
	}
	if perm := graph.Attribute(turn, "perm").GetInts(); len(perm) > 0 && !slices.Equal(perm, []int64{1, 0}) {
		return nil
	}
	view := f.maker(sums, 0, "Reshape", true)
	if view == nil || f.Graph.Source(view, 0) != f.Graph.Source(n, 0) || !graph.HasInput(sums, 1) || graph.IntAttribute(view, "allowzero") != 0 {
		return nil
	}
	const mostAxes = 64
	shape, ok := f.integers(view, 1, mostAxes)
	axes, known := f.integers(sums, 1, 1)
	if !ok || !known || len(shape) < 2 || len(axes) != 1 || axes[0] != -1 && axes[0] != int64(len(shape)-1) {
		return nil
	}
	lead := len(shape) - 2
	if !slices.Equal(shape[lead:], []int64{k / block, block}) || slices.ContainsFunc(shape[:lead], func(n int64) bool { return n != 0 }) {
		return nil
	}
	return f.storedMins(turn)
}

// minsOfRows finds the mins of the rows that a GatherBlockQuantized gathers.
func (f *Recognizer) minsOfRows(n, end *onnxpb.NodeProto, k, block int64) *Constant {
	rows := f.maker(end, 1, "Gather", false)
	if rows == nil || graph.IntAttribute(n, "gather_axis") != 0 {
		return nil
	}
	if k != block {
		index := f.input(rows, 1)
		if graph.IntAttribute(rows, "axis") != -1 || index == nil || index.Values.Stored == nil || index.Values.Size() != k {
			return nil
		}
		if b, ok := blocksOf(index, k/block); !ok || b != block {
			return nil
		}
		if rows = f.maker(rows, 0, "Gather", false); rows == nil {
			return nil
		}
	}
	if graph.IntAttribute(rows, "axis") != 0 || f.Graph.Source(rows, 1) != f.Graph.Source(n, 1) {
		return nil
	}
	return f.storedMins(rows)
}

// storedMins returns the mins that a node reads as its first input.
func (f *Recognizer) storedMins(n *onnxpb.NodeProto) *Constant {
	c := f.input(n, 0)
	if c == nil || c.Values.Stored == nil || c.Decoder != nil || len(c.Values.Shape) != 2 {
		return nil
	}
	return c
}
