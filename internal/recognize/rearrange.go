package recognize

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
)

// Cuts reports whether a node is a Slice, Split or Concat of ONNX.
func Cuts(n *onnxpb.NodeProto) bool {
	return isOne(n, "Slice", "Concat") || graph.Operator(n) == "Split"
}

// Reshapes reports whether a node only changes the shape of its first input, or nothing.
func Reshapes(n *onnxpb.NodeProto) bool {
	return isOne(n, "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
}

// Transposes reports whether a node passes on its input with the axes in another order.
func Transposes(n *onnxpb.NodeProto) bool { return isOne(n, "Transpose") }

// isOne reports whether a node is one of some operators of ONNX, with one output. A broken model may
// declare more outputs.
func isOne(n *onnxpb.NodeProto, operators ...string) bool {
	return n != nil && len(n.Output) == 1 && slices.Contains(operators, graph.Operator(n))
}

// mostParts is the most outputs of a Split that is folded.
const mostParts = 1000

// rearranged folds a value with the elements of stored tensors in another order: the output of a Slice,
// Split or Concat, or of a node that changes the shape.
func (f *Recognizer) rearranged(v *graph.Value) *Constant {
	n := v.Node
	if graph.Parameter(n, "axis", "axes", "starts", "ends", "split", "num_outputs", "allowzero") != "" {
		return nil
	}
	list := make([]*lazy.Tensor, len(n.Input))
	for i := range list {
		if i > 0 && n.GetOpType() != "Concat" {
			break // the other inputs are parameters
		}
		c := f.cutInput(n, i)
		if !movable(c) {
			return nil
		}
		list[i] = c.Values
	}
	if len(list) == 0 || len(n.Output) > mostParts {
		return nil
	}
	var made *lazy.Tensor
	switch n.GetOpType() {
	case "Slice":
		made = f.sliced(n, list[0])
	case "Split":
		made = f.split(n, list[0], slices.Index(f.Graph.Outputs(n), v))
	case "Concat":
		made = f.joined(n, list)
	default:
		if shape, ok := reach.NewShape(f.Graph, n, list[0].Shape); ok && shapes.Count(shape) == list[0].Size() {
			return &Constant{Values: list[0].Reshaped(shape), Source: f.input(n, 0).Source}
		}
	}
	if made == nil {
		return nil
	}
	return &Constant{Values: made}
}

// cutInput is input, and for nodes that cut it looks behind a Transpose.
func (f *Recognizer) cutInput(n *onnxpb.NodeProto, i int) *Constant {
	v := f.Graph.Source(n, i)
	if v == nil || !Cuts(n) || !Transposes(v.Node) || graph.Parameter(v.Node, "perm") != "" {
		return f.input(n, i)
	}
	x := f.input(v.Node, 0)
	if !movable(x) {
		return nil
	}
	perm, ok := permutation(v.Node, len(x.Values.Shape))
	if !ok {
		return nil
	}
	turned := *x
	turned.Values = x.Values.Transposed(perm)
	return &turned
}

// movable reports whether the elements of a constant can be read in another order: they are stored, in
// whole bytes.
func movable(c *Constant) bool {
	return c != nil && c.Decoder == nil && c.Values.Stored != nil && c.Values.DType.Bits()%8 == 0 && c.Values.Size() > 0
}

// permutation returns the order of the axes of a Transpose: its attribute, by default reversed.
func permutation(n *onnxpb.NodeProto, rank int) ([]int64, bool) {
	perm := graph.Attribute(n, "perm").GetInts()
	if graph.Attribute(n, "perm") == nil {
		for i := range rank {
			perm = append(perm, int64(rank-1-i))
		}
	}
	for i, p := range slices.Sorted(slices.Values(perm)) {
		if p != int64(i) {
			return nil, false
		}
	}
	return perm, len(perm) == rank
}

// list returns the integers that an attribute or, in newer opsets, an input has.
func (f *Recognizer) list(n *onnxpb.NodeProto, attribute string, input int) ([]int64, bool) {
	if a := graph.Attribute(n, attribute); a != nil && attribute != "" {
		return a.Ints, len(a.Ints) <= shapes.MaxRank
	}
	if list, ok := f.Graph.ConstantInts(n, input); ok {
		return list, true
	}
	return f.integers(n, input, shapes.MaxRank)
}

// sliced returns the output of a Slice of x; nil if it is unknown or empty.
func (f *Recognizer) sliced(n *onnxpb.NodeProto, x *lazy.Tensor) *lazy.Tensor {
	starts, ok := f.list(n, "starts", 1)
	ends, ok2 := f.list(n, "ends", 2)
	if !ok || !ok2 || len(ends) != len(starts) || len(starts) > len(x.Shape) {
		return nil
	}
	axes, steps := make([]int64, len(starts)), slices.Repeat([]int64{1}, len(starts))
	for i := range axes {
		axes[i] = int64(i)
	}
	if graph.Attribute(n, "axes") != nil || graph.HasInput(n, 3) {
		if axes, ok = f.list(n, "axes", 3); !ok {
			return nil
		}
	}
	if graph.HasInput(n, 4) {
		if steps, ok = f.list(n, "", 4); !ok {
			return nil
		}
	}
	if len(axes) != len(starts) || len(steps) != len(starts) {
		return nil
	}
	cut := make([]bool, len(x.Shape))
	for i, axis := range axes {
		axis = shapes.Axis(axis, len(x.Shape))
		if axis < 0 || axis >= int64(len(x.Shape)) || cut[axis] || steps[i] == 0 {
			return nil
		}
		cut[axis] = true
		long := x.Shape[axis]
		if steps[i] < 0 && starts[i] < -long {
			return nil // runtimes differ about a start before the first element
		}
		start, count := shapes.Slice(starts[i], ends[i], steps[i], long)
		if count == 0 {
			return nil
		}
		x = x.Sliced(int(axis), start, steps[i], count)
	}
	return x
}

// split returns output number part of a Split of x; nil if it is not known or empty.
func (f *Recognizer) split(n *onnxpb.NodeProto, x *lazy.Tensor, part int) *lazy.Tensor {
	axis := shapes.Axis(graph.IntAttribute(n, "axis"), len(x.Shape))
	if axis < 0 || axis >= int64(len(x.Shape)) || part < 0 {
		return nil
	}
	long, parts := x.Shape[axis], int64(len(n.Output))
	var sizes []int64
	if graph.Attribute(n, "split") != nil || graph.HasInput(n, 1) {
		var ok bool
		if sizes, ok = f.list(n, "split", 1); !ok || int64(len(sizes)) != parts {
			return nil
		}
	} else {
		size := shapes.DivideUp(long, parts) // the last part may be shorter, if num_outputs is there
		if size*parts != long && graph.IntAttribute(n, "num_outputs") != parts {
			return nil
		}
		sizes = slices.Repeat([]int64{size}, int(parts))
		sizes[parts-1] = long - size*(parts-1)
	}
	at, end := int64(0), int64(0)
	for i, size := range sizes {
		if size < 1 || size > long-end {
			return nil
		}
		if i == part {
			at = end
		}
		end += size
	}
	if end != long {
		return nil
	}
	return x.Sliced(int(axis), at, 1, sizes[part])
}

// joined returns the output of a Concat of a list; nil if it is unknown, or larger than the model.
func (f *Recognizer) joined(n *onnxpb.NodeProto, list []*lazy.Tensor) *lazy.Tensor {
	first, bytes := list[0], int64(0)
	axis := shapes.Axis(graph.IntAttribute(n, "axis"), len(first.Shape))
	if axis < 0 || axis >= int64(len(first.Shape)) || graph.Attribute(n, "axis") == nil {
		return nil
	}
	for _, x := range list {
		if x.DType != first.DType || len(x.Shape) != len(first.Shape) {
			return nil
		}
		for i, n := range x.Shape {
			if int64(i) != axis && n != first.Shape[i] {
				return nil
			}
		}
		if bytes += x.DType.Bytes(x.Size()); bytes > f.Graph.File.Size() {
			return nil
		}
	}
	return lazy.Joined(list, int(axis))
}

// newShape returns the shape that a Reshape, Flatten, Squeeze or Unsqueeze gives to a constant.
func (f *Recognizer) newShape(n *onnxpb.NodeProto, old []int64) (shape []int64, ok bool) {
	if graph.Parameter(n, "allowzero", "axis", "axes") != "" {
		return nil, false
	}
	if n.GetOpType() == "Flatten" {
		axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 1), len(old))
		if axis < 0 || axis > int64(len(old)) {
			return nil, false
		}
		return []int64{shapes.Count(old[:axis]), shapes.Count(old[axis:])}, true
	}
	list, ok := graph.Attribute(n, "axes").GetInts(), true
	if graph.HasInput(n, 1) {
		list, ok = f.integers(n, 1, shapes.MaxRank)
	}
	if !ok || len(list) > shapes.MaxRank {
		return nil, false
	}
	switch n.GetOpType() {
	case "Squeeze":
		return shapes.Squeeze(old, list)
	case "Unsqueeze":
		return shapes.Unsqueeze(old, list)
	case "Reshape":
		if graph.HasInput(n, 1) {
			return shapes.Reshape(list, old, graph.IntAttribute(n, "allowzero") != 0)
		}
	}
	return nil, false
}

// Transposed returns the matrix whose transpose a value is: the value is a Reshape of a Transpose that
// moves the first axes of a constant behind the others. It returns nil for other values.
func (f *Recognizer) Transposed(v *graph.Value) (*graph.Value, *Constant) {
	n := v.Node
	if n == nil || !graph.IsStandard(n.GetDomain()) || n.GetOpType() != "Reshape" && n.GetOpType() != "Flatten" {
		return nil, nil
	}
	moved := f.Graph.Source(n, 0)
	if moved == nil || moved.Node.GetOpType() != "Transpose" || !graph.IsStandard(moved.Node.GetDomain()) {
		return nil, nil
	}
	from := f.Graph.Source(moved.Node, 0)
	perm := graph.Attribute(moved.Node, "perm").GetInts()
	if from == nil || len(perm) == 0 {
		return nil, nil
	}
	x := f.Fold(from)
	if x == nil || x.Decoder != nil || len(perm) != len(x.Values.Shape) {
		return nil, nil
	}
	rank, first := int64(len(perm)), perm[0]
	var shape []int64
	for i, p := range perm {
		if p < 0 || p >= rank || p != (first+int64(i))%rank {
			return nil, nil
		}
		shape = append(shape, x.Values.Shape[p])
	}
	rows, columns := shapes.Count(x.Values.Shape[:first]), shapes.Count(x.Values.Shape[first:])
	if shape, ok := f.newShape(n, shape); !ok || !slices.Equal(shape, []int64{columns, rows}) {
		return nil, nil
	}
	matrix := *x
	matrix.Values = x.Values.Reshaped([]int64{rows, columns})
	return from, &matrix
}
