package onnxq

import (
	"errors"

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

// Interruption returns the error that interrupted a calibration, if err wraps ErrKept: without the words that progress is kept.
func Interruption(err error) (cause error, ok bool) {
	kept, ok := errors.AsType[*layerfit.KeptError](err)
	if !ok {
		return nil, false
	}
	return kept.Err, true
}
