package balance

import (
	"math"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// homogeneous are operators f with f(c·x) = c·f(x) for each channel and each factor c above 0, if axis 1, which has the
// channels in pools, is not touched.
var homogeneous = map[string]bool{
	"Relu": true, "LeakyRelu": true, "Abs": true, "Neg": true, "Identity": true, "Dropout": true, "Cast": true, "Clip": true,
	"MaxPool": true, "AveragePool": true, "GlobalAveragePool": true, "GlobalMaxPool": true,
	"ReduceMean": true, "ReduceSum": true, "ReduceMax": true, "ReduceMin": true, "ReduceL1": true, "ReduceL2": true,
	"Pad": true, "Slice": true, "Resize": true, "Upsample": true, "Expand": true, "Gather": true,
	"Transpose": true, "Reshape": true, "Flatten": true, "Squeeze": true, "Unsqueeze": true,
}

// through says whether factors along an axis of the first input of a node are factors of its output, and along which
// axis. It does not look at operators with several activations or with stored weights: see read and made.
func (r *regions) through(n *onnxpb.NodeProto, axis Axis) (to Axis, ok bool) {
	op := n.GetOpType()
	v, out := r.x.Source(n, 0), r.x.Outputs(n)[0]
	if !homogeneous[op] || !graph.IsStandard(n.GetDomain()) || v == nil || out == nil {
		return axis, false
	}
	switch op {
	case "Relu", "LeakyRelu", "Abs", "Neg", "Identity":
		return axis, true
	case "Dropout":
		return axis, !graph.HasInput(n, 2)
	case "Cast":
		return axis, graph.IntAttribute(n, "to") == int64(dtype.Float32)
	case "Clip":
		return axis, r.isRelu(n)
	}
	rank := r.rank(v)
	front := rank + axis.Back
	if axis.Spread || rank == 0 || front < 0 {
		return axis, false
	}
	switch op {
	case "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool":
		return axis, front == 1 && rank > 2
	case "Transpose":
		perm := graph.Attribute(n, "perm").GetInts()
		at := rank - 1 - front
		if perm != nil {
			at = slices.Index(perm, int64(front))
		}
		return Axis{Back: at - rank}, at >= 0 && (perm == nil || len(perm) == rank)
	case "Flatten":
		at := int(graph.IntAttributeOr(n, "axis", 1))
		if at < 0 {
			at += rank
		}
		return Axis{-1, front < rank-1}, front == at && front < rank-1 || front == rank-1 && at < rank
	case "Squeeze", "Unsqueeze", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2":
		return r.otherAxes(n, front, rank)
	case "Reshape":
		return r.reshaped(n, front, rank)
	case "Gather":
		at := int(graph.IntAttribute(n, "axis"))
		if at < 0 {
			at += rank
		}
		return axis, at < front
	case "Pad":
		return axis, r.padsOthers(n, front, rank)
	case "Slice":
		return axis, r.slicesOthers(n, front, rank)
	case "Resize", "Upsample":
		return axis, r.resizesOthers(n, out, front)
	case "Expand":
		return axis, r.length(v, axis.Back) > 1
	}
	return axis, false
}

// isRelu reports whether a Clip has the bound 0 below and none above.
func (r *regions) isRelu(n *onnxpb.NodeProto) bool {
	lo, hi := graph.FloatAttributeOr(n, "min", float32(math.Inf(-1))), graph.FloatAttributeOr(n, "max", float32(math.Inf(1)))
	for i, bound := range []*float32{&lo, &hi} {
		if graph.HasInput(n, i+1) {
			var ok bool
			if *bound, ok = r.x.ConstantFloat(r.x.Source(n, i+1)); !ok {
				return false
			}
		}
	}
	return lo == 0 && hi >= math.MaxFloat32
}

// otherAxes is through for operators with a list of axes, which must not have the channels.
func (r *regions) otherAxes(n *onnxpb.NodeProto, front, rank int) (Axis, bool) {
	axes, ok := r.axes(n)
	after := rank
	if n.GetOpType() == "Unsqueeze" {
		after += len(axes)
	}
	if !ok {
		return Axis{}, false
	}
	touched := map[int]bool{}
	for _, a := range axes {
		at := int(a)
		if at < 0 {
			at += after
		}
		if at < 0 || at >= after {
			return Axis{}, false
		}
		touched[at] = true
	}
	if n.GetOpType() == "Unsqueeze" {
		at := 0
		for left := front; at < after; at++ { // the axis of the output that has the channels
			if touched[at] {
				continue
			}
			if left == 0 {
				break
			}
			left--
		}
		return Axis{Back: at - after}, at < after
	}
	if touched[front] {
		return Axis{}, false
	}
	back := front - rank
	if n.GetOpType() == "Squeeze" || graph.IntAttributeOr(n, "keepdims", 1) == 0 {
		for at := range touched {
			if at > front {
				back++
			}
		}
	}
	return Axis{Back: back}, true
}

// axes returns the axes of a node, in an attribute or in its second input.
func (r *regions) axes(n *onnxpb.NodeProto) ([]int64, bool) {
	if a := graph.Attribute(n, "axes"); a != nil {
		return a.GetInts(), len(a.GetInts()) > 0
	}
	axes, ok := r.x.ConstantInts(n, 1)
	return axes, ok && len(axes) > 0
}

// reshaped is through for a Reshape.
func (r *regions) reshaped(n *onnxpb.NodeProto, front, rank int) (Axis, bool) {
	v, out := r.x.Source(n, 0), r.x.Outputs(n)[0]
	channels := r.length(v, front-rank)
	want, known := r.x.ConstantInts(n, 1)
	if !known || graph.IntAttribute(n, "allowzero") != 0 {
		dims := r.shapes.Of(out)
		same := front == rank-1 && len(dims) > 0 && channels > 0 && dims[len(dims)-1].Length == channels
		return Axis{Back: -1}, same
	}
	last := len(want) - 1
	if last < 0 {
		return Axis{}, false
	}
	if front == rank-1 && channels > 0 && want[last] == channels {
		return Axis{Back: -1}, true // rows of channels stay rows
	}
	if channels > 0 && want[last] == channels && r.onesBehind(v, front, rank) {
		return Axis{Back: -1}, true
	}
	// The axes before stay, and so does this one; or it joins all behind it.
	if front > last {
		return Axis{}, false
	}
	for i := range front {
		if length := r.length(v, i-rank); want[i] != 0 && (length == 0 || want[i] != length) {
			return Axis{}, false
		}
	}
	switch {
	case want[front] == 0 || channels > 0 && want[front] == channels:
		return Axis{Back: front - len(want)}, true
	case front == last: // all that is left
		return Axis{-1, front < rank-1}, true
	}
	return Axis{}, false
}

// onesBehind reports whether the axes of a value behind one have a single element.
func (r *regions) onesBehind(v *graph.Value, front, rank int) bool {
	if v.Node != nil && (graph.IsOperator(v.Node, "GlobalAveragePool") || graph.IsOperator(v.Node, "GlobalMaxPool")) {
		return front == 1
	}
	for at := front + 1; at < rank; at++ {
		if r.length(v, at-rank) != 1 {
			return false
		}
	}
	return true
}

// padsOthers reports whether a Pad adds zeros, or values that are there, along other axes alone.
func (r *regions) padsOthers(n *onnxpb.NodeProto, front, rank int) bool {
	pads := graph.Attribute(n, "pads").GetInts()
	if pads == nil {
		var ok bool
		if pads, ok = r.x.ConstantInts(n, 1); !ok || graph.HasInput(n, 3) {
			return false
		}
	}
	if mode := string(graph.Attribute(n, "mode").GetS()); mode == "" || mode == "constant" {
		if graph.FloatAttributeOr(n, "value", 0) != 0 {
			return false
		}
		if graph.HasInput(n, 2) {
			if with, ok := r.x.ConstantFloat(r.x.Source(n, 2)); !ok || with != 0 {
				return false
			}
		}
	}
	return len(pads) == 2*rank && pads[front] == 0 && pads[front+rank] == 0
}

// slicesOthers reports whether a Slice cuts along other axes alone.
func (r *regions) slicesOthers(n *onnxpb.NodeProto, front, rank int) bool {
	axes := graph.Attribute(n, "axes").GetInts()
	if axes == nil {
		if !graph.HasInput(n, 3) {
			return false
		}
		var ok bool
		if axes, ok = r.x.ConstantInts(n, 3); !ok {
			return false
		}
	}
	return !slices.Contains(axes, int64(front)) && !slices.Contains(axes, int64(front-rank))
}

// resizesOthers reports whether the channels of a Resize or Upsample are not resized.
func (r *regions) resizesOthers(n *onnxpb.NodeProto, out *graph.Value, front int) bool {
	mode := string(graph.Attribute(n, "coordinate_transformation_mode").GetS())
	if mode == "tf_crop_and_resize" || graph.Attribute(n, "axes") != nil {
		return false
	}
	v := r.x.Source(n, 0)
	back := front - r.rank(v)
	if was := r.length(v, back); was > 0 && r.length(out, back) == was {
		return true
	}
	input := 2
	if n.GetOpType() == "Upsample" || r.x.Opset < 11 {
		input = 1
	}
	scales := r.x.Source(n, input)
	if scales == nil || scales.Tensor == nil || scales.Tensor.GetDataType() != int32(onnxpb.TensorProto_FLOAT) {
		return false
	}
	numbers, err := read(r.x, scales, int64(r.rank(v)))
	return err == nil && front < len(numbers) && numbers[front] == 1
}

// length is the length of an axis of a value, -1 for the last one; 0 if it is unknown. A convolution tells its
// channels.
func (r *regions) length(v *graph.Value, back int) int64 {
	if dims := r.shapes.Of(v); dims != nil {
		if at := len(dims) + back; at >= 0 && dims[at].Length > 0 {
			return dims[at].Length
		}
	}
	for range 32 {
		if v == nil || v.Node == nil {
			return 0
		}
		if made, axis, channels := r.begin(v.Node); made == v {
			if axis.Back == back {
				return channels
			}
			return 0
		}
		if !keepsAxes[v.Node.GetOpType()] {
			return 0
		}
		v = r.x.Source(v.Node, 0)
	}
	return 0
}

// keepsAxes are operators whose output has the axes and the channels of their first input.
var keepsAxes = map[string]bool{
	"Relu": true, "LeakyRelu": true, "PRelu": true, "Abs": true, "Neg": true, "Identity": true, "Dropout": true, "Cast": true, "Clip": true, "Sigmoid": true,
	"HardSigmoid": true, "HardSwish": true, "Tanh": true, "Erf": true, "Softmax": true,
	"MaxPool": true, "AveragePool": true, "GlobalAveragePool": true, "GlobalMaxPool": true, "BatchNormalization": true, "InstanceNormalization": true,
}

// deepest bounds the nodes through which a rank is inferred.
const deepest = 256

// rank is the number of axes of a value; 0 if it is unknown.
func (r *regions) rank(v *graph.Value) int {
	if v == nil || r.depth > deepest {
		return 0
	}
	if dims := r.shapes.Of(v); dims != nil {
		return len(dims)
	}
	n := v.Node
	if n == nil || !graph.IsStandard(n.GetDomain()) {
		return 0
	}
	r.depth++
	defer func() { r.depth-- }()
	switch op := n.GetOpType(); {
	case op == "Conv", op == "ConvTranspose":
		if w := r.x.Source(n, 1); w != nil && w.Tensor != nil {
			return len(w.Tensor.GetDims())
		}
		return r.rank(r.x.Source(n, 0))
	case keepsAxes[op], op == "Pad", op == "Slice", op == "Resize", op == "Upsample", op == "Concat", op == "Split", op == "Expand":
		return r.rank(r.x.Source(n, 0))
	case op == "Transpose":
		if perm := graph.Attribute(n, "perm").GetInts(); perm != nil {
			return len(perm)
		}
		return r.rank(r.x.Source(n, 0))
	case op == "Flatten", op == "Gemm":
		return 2
	case slices.Contains([]string{"Add", "Sub", "Mul", "Div", "MatMul"}, op):
		a, b := r.rank(r.x.Source(n, 0)), r.rank(r.x.Source(n, 1))
		if a == 0 || b == 0 {
			return 0
		}
		return max(a, b)
	case op == "Squeeze", op == "Unsqueeze", strings.HasPrefix(op, "Reduce"):
		axes, ok := r.axes(n)
		before := r.rank(r.x.Source(n, 0))
		switch {
		case !ok || before == 0:
			return 0
		case op == "Unsqueeze":
			return before + len(axes)
		case op == "Squeeze" || graph.IntAttributeOr(n, "keepdims", 1) == 0:
			return before - len(axes)
		}
		return before
	case op == "Reshape":
		if want := r.shapes.Of(r.x.Source(n, 1)); len(want) == 1 {
			return int(want[0].Length)
		}
	}
	return 0
}
