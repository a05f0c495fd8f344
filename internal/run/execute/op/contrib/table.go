// Package contrib has operators of com.microsoft, which ONNX Runtime's tools write.
package contrib

import "onnxquant/internal/run/execute/op"

// Operators are the operators of this package.
var Operators = op.Table{
	"com.microsoft:MoE": {Inputs: 3, Attributes: "activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion swiglu_limit use_sparse_mixer", Run: runMoE},
}
