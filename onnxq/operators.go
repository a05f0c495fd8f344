package onnxq

import (
	"slices"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// leaf is a use of a tensor by an operator that computes with it, perhaps behind
// others that only pass it on.
type leaf struct {
	use
	axes []int               // axes of the tensor, in the order in which the operator sees them
	cast bool                // to another type on the way
	via  []*onnxpb.NodeProto // that pass the tensor on, from the tensor to the operator
}

// leaves finds who computes with a tensor in the end: behind Identity, Transpose
// and Cast between float types.
func (x *graphIndex) leaves(v *value) []leaf {
	start := leaf{axes: make([]int, len(v.tensor.GetDims()))}
	for i := range start.axes {
		start.axes[i] = i
	}
	return x.appendLeaves(nil, v, start, modelfile.DType(v.tensor.GetDataType()))
}

func (x *graphIndex) appendLeaves(leaves []leaf, v *value, at leaf, dtype modelfile.DType) []leaf {
	for _, u := range v.uses {
		at.use = u
		next, ok := passedOn(u, at.axes, dtype)
		behind := x.made[u.node]
		if !ok || behind == nil || behind.output {
			leaves = append(leaves, at)
			continue
		}
		further := leaf{axes: next, cast: at.cast || u.node.GetOpType() == "Cast", via: append(slices.Clone(at.via), u.node)}
		leaves = x.appendLeaves(leaves, behind, further, dtype)
	}
	return leaves
}

// passedOn tells whether a node hands a tensor on as it is, but for the order of
// its axes, which it returns, and a rounding to another float type.
func passedOn(u use, axes []int, dtype modelfile.DType) ([]int, bool) {
	if !standardDomain(u.node.GetDomain()) || len(u.node.Output) != 1 {
		return nil, false
	}
	switch u.node.GetOpType() {
	case "Identity":
		return axes, true
	case "Cast":
		// Runtimes that cast bfloat16 need not decode to it: ONNX Runtime does not.
		return axes, dtype != modelfile.BFloat16 && modelfile.DType(intAttribute(u.node, "to")).Float()
	case "Transpose":
		next := slices.Clone(axes)
		slices.Reverse(next)
		for _, a := range u.node.Attribute {
			if a.GetName() == "perm" {
				return permuted(axes, a.Ints)
			}
		}
		return next, true
	}
	return nil, false
}

// permuted returns the axes in the order of perm, if that is one.
func permuted(axes []int, perm []int64) ([]int, bool) {
	next := make([]int, len(axes))
	seen := make([]bool, len(axes))
	if len(perm) != len(axes) {
		return nil, false
	}
	for i, p := range perm {
		if p < 0 || p >= int64(len(axes)) || seen[p] {
			return nil, false
		}
		seen[p] = true
		next[i] = axes[p]
	}
	return next, true
}

// operand says how an operator sums over a weight.
type operand struct {
	axis int  // that it sums over
	flat bool // the axes from the second on count as one
}

// operand tells whether the operator takes the tensor as its weight, and how.
// The table of what can be quantized is here; KnownOps lists its operators.
func (l leaf) operand() (o operand, ok bool) {
	o, ok = operandOf(l.use, len(l.axes))
	switch {
	case !ok:
		return o, false
	case o.flat:
		return o, slices.IsSorted(l.axes)
	}
	o.axis = l.axes[o.axis]
	return o, true
}

// operandOf is operand for a tensor of that rank, read directly.
func operandOf(u use, rank int) (o operand, ok bool) {
	if !standardDomain(u.node.GetDomain()) {
		return o, false
	}
	switch u.node.GetOpType() {
	case "MatMul":
		if u.input == 0 {
			return operand{axis: rank - 1}, rank >= 1
		}
		return operand{axis: max(rank-2, 0)}, rank >= 1
	case "Gemm":
		if u.input > 1 || rank != 2 {
			return o, false
		}
		// A is [M, K], B is [K, N], and either may be transposed.
		transposed := intAttribute(u.node, [...]string{"transA", "transB"}[u.input]) != 0
		if (u.input == 0) != transposed {
			o.axis = 1
		}
		return o, true
	case "Gather":
		// Nothing is summed over: a row of an embedding shares scales.
		return operand{axis: rank - 1}, u.input == 0 && rank >= 2
	case "Conv":
		// [M, C/groups, kernel…]: sums over input channels and kernel.
		return operand{axis: 1, flat: true}, u.input == 1 && rank >= 3
	case "ConvTranspose":
		// [C, M/groups, kernel…]: sums over input channels.
		return operand{axis: 0, flat: true}, u.input == 1 && rank >= 3
	}
	return o, false
}

func intAttribute(n *onnxpb.NodeProto, name string) int64 {
	for _, a := range n.Attribute {
		if a.GetName() == name {
			return a.GetI()
		}
	}
	return 0
}
