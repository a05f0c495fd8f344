package onnxq

import (
	"errors"
	"fmt"
	"strings"

	"onnxquant/internal/commit"
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// Errors of this package wrap one of these. The message is one line. It names the file, and the tensor, node or
// offset.
var (
	// ErrFormat: the file is not an ONNX model.
	ErrFormat = modelfile.ErrFormat
	// ErrTensor: type, dimensions and content of a tensor do not match, or its external data
	// is missing or out of bounds.
	ErrTensor = modelfile.ErrTensor
	// ErrModel: the structure of the model is invalid.
	ErrModel = graph.ErrModel
	// ErrTarget: the output cannot be written.
	ErrTarget = commit.ErrTarget
	// ErrStrict: a selected weight cannot be quantized, and Options.Strict is set.
	ErrStrict = discover.ErrStrict
	// ErrNoData: the algorithm needs Options.Calibration.
	ErrNoData = spec.ErrNoData
	// ErrZeroPoint: the algorithm needs asymmetric codes.
	ErrZeroPoint = spec.ErrZeroPoint
	// ErrMemory: some weight cannot be calibrated within Options.Memory.
	ErrMemory = convert.ErrMemory
	// ErrFallback: a setting that was asked for is not applied, and Options.AllowFallback is not set.
	ErrFallback = convert.ErrFallback
	// ErrKept: calibration was interrupted, and Options.Resume can continue it.
	ErrKept = layerfit.ErrKept
	// ErrCoverage: less is quantized than Options.MinCoverage.
	ErrCoverage = convert.ErrCoverage
	// ErrVerify: the output differs from the written bytes when it is read again.
	ErrVerify = write.ErrVerify
)

// Interruption returns the error that interrupted a calibration, if err wraps ErrKept. It has the words of err, but for those that
// progress is kept, and wraps what err wraps, but for ErrKept.
func Interruption(err error) (cause error, ok bool) {
	if !errors.Is(err, ErrKept) {
		return nil, false
	}
	return interruption{err}, true
}

// interruption is an error without ErrKept.
type interruption struct{ kept error }

func (e interruption) Error() string {
	return strings.ReplaceAll(e.kept.Error(), fmt.Sprintf(" (%v)", ErrKept), "")
}

func (e interruption) Is(target error) bool { return target != ErrKept && errors.Is(e.kept, target) }

func (e interruption) As(target any) bool {
	_, keeps := target.(**layerfit.KeptError)
	return !keeps && errors.As(e.kept, target)
}
