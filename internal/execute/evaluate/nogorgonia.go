//go:build nogorgonia

package evaluate

import "onnxquant/internal/execute"

// compute always fails: gorgonnx is not part of this build.
func compute(op string, _ map[string]any, _ [][]int64, _ ...*execute.Tensor) (*execute.Tensor, error) {
	return nil, unsupported("%s: this program was built without gorgonnx (-tags nogorgonia)", op)
}
