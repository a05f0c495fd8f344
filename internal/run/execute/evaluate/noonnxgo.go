//go:build !onnxgo

package evaluate

import (
	"errors"

	"onnxquant/internal/run/execute"
)

// OnnxGo fails: onnx-go is not part of this build.
func OnnxGo() (execute.Runner, error) {
	return nil, errors.New("this program was built without onnx-go: build it with -tags onnxgo")
}
