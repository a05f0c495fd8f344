package calibrate

import (
	"context"
	"fmt"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/observe"
)

// engineFor finds the engine that options ask for. If nobody asks for one, it is the pure Go one for a model
// that ONNX Runtime has no kernel for.
func engineFor(ctx context.Context, m *onnxpb.ModelProto, opts Options) (*observe.Engine, error) {
	if opts.Engine == "" || opts.Engine == observe.Auto {
		var lacking error
		graph.WalkNodes(m, func(n *onnxpb.NodeProto) {
			if why := withoutKernel(n); why != "" && lacking == nil {
				lacking = fmt.Errorf("ONNX Runtime's CPU provider does not run %s: %s", graph.Describe(n), why)
			}
		})
		if lacking != nil {
			return observe.Lacking(lacking), nil
		}
	}
	return observe.Find(ctx, opts.Engine, opts.Library)
}

// withoutKernel says why ONNX Runtime does not run a MoE, or returns "".
func withoutKernel(n *onnxpb.NodeProto) string {
	swiglu := string(graph.Attribute(n, "activation_type").GetS()) == "swiglu"
	switch {
	case graph.Operator(n) != graph.Contrib+".MoE":
		return ""
	case graph.HasInput(n, 6):
		return "it has fc3"
	case swiglu && graph.IntAttribute(n, "swiglu_fusion") != 1:
		return "its swiglu is not interleaved"
	}
	return ""
}
