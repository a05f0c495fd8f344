package half

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// WithoutBFloat16 finds the nodes that read or make bfloat16 although the runtime has no bfloat16
// kernel for their operator; has reports the kernels. It skips DequantizeLinear: package target lists
// its types.
func WithoutBFloat16(x *graph.Graph, has func(op string) bool) (nodes []*onnxpb.NodeProto) {
	if !MayHold(x.File.Proto) {
		return nil
	}
	types := Types(x)
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		op := graph.Operator(n)
		if op == "DequantizeLinear" || has(op) {
			return
		}
		if slices.ContainsFunc(slices.Concat(x.Inputs(n), x.Outputs(n)), func(v *graph.Value) bool { return v != nil && types(v) == dtype.BFloat16 }) {
			nodes = append(nodes, n)
		}
	})
	return nodes
}
