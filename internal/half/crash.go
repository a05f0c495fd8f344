package half

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// TransposeCrashes reports whether a node is a Transpose with which ONNX Runtime 1.31 crashes when
// it loads a model in which the node makes half. It is one that moves the first axis to one of the
// last two places, in front of a MatMul, with or without a Cast between, of unknown shape: there
// it means to fuse both to a FusedMatMul with transBatch.
func TransposeCrashes(x *graph.Graph, shapes *graph.Shapes, n *onnxpb.NodeProto) bool {
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
	return multiplied(x, shapes, x.Made(n))
}

// multiplied reports whether a MatMul reads a value, or a Cast of it, and its shape is unknown.
func multiplied(x *graph.Graph, shapes *graph.Shapes, v *graph.Value) bool {
	return v != nil && slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		switch {
		case !graph.IsStandard(u.Node.GetDomain()):
			return false
		case u.Node.GetOpType() == "MatMul":
			return shapes.Of(x.Made(u.Node)) == nil
		case u.Node.GetOpType() == "Cast" && v.Node.GetOpType() != "Cast":
			return multiplied(x, shapes, x.Made(u.Node))
		}
		return false
	})
}

const reasonCrash = "makes ONNX Runtime 1.31 crash in half, in front of a MatMul"

// keepCrashingTranspose keeps the nodes of TransposeCrashes in float32.
func (c *choice) keepCrashingTranspose() {
	shapes := graph.NewShapes(c.x)
	graph.WalkNodes(c.x.File.Proto, func(n *onnxpb.NodeProto) {
		if !c.stays(n) && TransposeCrashes(c.x, shapes, n) && c.types[c.x.Made(n)].float() {
			c.kept[c.x.Number(n)] = reasonCrash
		}
	})
}
