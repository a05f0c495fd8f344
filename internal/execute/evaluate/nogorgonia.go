//go:build nogorgonia

package evaluate

import "onnxquant/internal/execute"

// compute refuses: this program is built without what computes.
func compute(op string, _ map[string]any, _ [][]int64, _ ...*execute.Tensor) (*execute.Tensor, error) {
	return nil, beyond("%s, in a program built without gorgonnx (-tags nogorgonia)", op)
}
