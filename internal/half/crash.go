package half

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// TransposeCrashes reports whether ONNX Runtime 1.31 crashes when it loads a model in which this
// Transpose makes half. The Transpose moves the first axis to one of the last two places. A MatMul
// reads the result, see multiplied. ONNX Runtime then tries to fuse the two
// to a FusedMatMul with transBatch.
func TransposeCrashes(x *graph.Graph, n *onnxpb.NodeProto) bool {
	perm := graph.Attribute(n, "perm").GetInts()
	rank := len(perm)
	if n.GetOpType() != "Transpose" || !graph.IsStandard(n.GetDomain()) || rank < 3 {
		return false
	}
	for i, p := range perm[:rank-2] {
		if p != int64(i)+1 {
			return false
		}
	}
	if p, q := perm[rank-2], perm[rank-1]; min(p, q) != 0 || max(p, q) != int64(rank)-1 {
		return false
	}
	return multiplied(x, x.Made(n))
}

// multiplied reports whether a MatMul reads v, directly or through a Cast or what ONNX Runtime removes.
func multiplied(x *graph.Graph, v *graph.Value) bool {
	return v != nil && slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		if !graph.IsStandard(u.Node.GetDomain()) {
			return false
		}
		switch u.Node.GetOpType() {
		case "MatMul":
			return true
		case "Cast", "Dropout", "Identity":
			return multiplied(x, x.Made(u.Node))
		}
		return false
	})
}

const reasonCrash = "makes ONNX Runtime 1.31 crash in half, in front of a MatMul"

// keepCrashingTranspose keeps the nodes of TransposeCrashes in float32.
func (c *choice) keepCrashingTranspose() {
	graph.WalkNodes(c.x.File.Proto, func(n *onnxpb.NodeProto) {
		if !c.staysFloat(n) && TransposeCrashes(c.x, n) && c.types[c.x.Made(n)].float() {
			c.kept[c.x.Number(n)] = reasonCrash
		}
	})
}
