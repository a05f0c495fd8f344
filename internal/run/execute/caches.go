package execute

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// sizedCaches gives the caches of GroupQueryAttention their last dimension where a model leaves it open, as onnxruntime-genai's
// builder does: the operator takes no other size. A cache that slides gets the length of the window, the least that the
// operator takes. It replaces the declarations that change.
func sizedCaches(g *onnxpb.GraphProto, inputs []*onnxpb.ValueInfoProto) {
	for i, info := range inputs {
		dims := info.GetType().GetTensorType().GetShape().GetDim()
		if len(dims) != 4 {
			continue
		}
		for _, n := range g.GetNode() {
			at := slices.Index(n.Input, info.GetName())
			if n.GetOpType() != "GroupQueryAttention" || at != 3 && at != 4 {
				continue
			}
			if intAttribute(n, "sliding_window_cache") != 0 {
				inputs[i] = withSize(inputs[i], 2, intAttribute(n, "local_window_size"))
			}
			inputs[i] = withSize(inputs[i], 3, headSize(g, n))
		}
	}
}

// withSize is an input with a size for a dimension, if the model leaves it open.
func withSize(info *onnxpb.ValueInfoProto, dim int, size int64) *onnxpb.ValueInfoProto {
	if _, fixed := FixedSize(info.GetType().GetTensorType().GetShape().Dim[dim]); fixed || size <= 0 {
		return info
	}
	info = proto.CloneOf(info)
	info.GetType().GetTensorType().GetShape().Dim[dim].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}
	return info
}

// headSize returns the size of a head of a GroupQueryAttention, or 0: it follows from the width of what the operator reads.
func headSize(g *onnxpb.GraphProto, n *onnxpb.NodeProto) int64 {
	heads, kept := intAttribute(n, "num_heads"), intAttribute(n, "kv_num_heads")
	packed := len(n.Input) < 2 || n.Input[1] == ""
	for i, by := range []int64{heads, kept} {
		if packed {
			by = heads + 2*kept
		}
		if i < len(n.Input) && n.Input[i] != "" && by > 0 {
			const deepest = 4
			if width := width(g, n.Input[i], deepest); width > 0 && width%by == 0 {
				return width / by
			}
		}
	}
	return 0
}

func intAttribute(n *onnxpb.NodeProto, name string) int64 {
	for _, a := range n.Attribute {
		if a.GetName() == name {
			return a.GetI()
		}
	}
	return 0
}

// width returns the size of the last dimension of a value, or 0. It follows at most so many nodes.
func width(g *onnxpb.GraphProto, name string, nodes int) int64 {
	for _, info := range g.GetValueInfo() {
		if dims := info.GetType().GetTensorType().GetShape().GetDim(); info.GetName() == name && len(dims) > 0 {
			if n, fixed := FixedSize(dims[len(dims)-1]); fixed {
				return n
			}
		}
	}
	for _, t := range g.GetInitializer() {
		if t.GetName() == name && len(t.Dims) > 0 {
			return t.Dims[len(t.Dims)-1]
		}
	}
	if nodes == 0 {
		return 0
	}
	for _, n := range g.GetNode() {
		if !slices.Contains(n.Output, name) {
			continue
		}
		switch op := n.GetOpType(); {
		case op == "MatMulNBits":
			return intAttribute(n, "N")
		case op == "MatMul" && len(n.Input) == 2:
			return width(g, n.Input[1], nodes-1)
		case op == "Add" && len(n.Input) == 2:
			return max(width(g, n.Input[1], 0), width(g, n.Input[0], nodes-1))
		case (op == "DequantizeLinear" || op == "Cast" || op == "Identity") && len(n.Input) > 0:
			return width(g, n.Input[0], nodes-1)
		}
	}
	return 0
}
