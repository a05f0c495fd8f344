package onnxq

import (
	"onnxquant/internal/commit"
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/layerfit"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/write"
	"onnxquant/onnxq/spec"
)

// Errors wrap one of these. The message is one line, with the file and the tensor, node or
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
	// ErrKept: calibration had begun, and Options.Resume goes on from what it has found.
	ErrKept = layerfit.ErrKept
	// ErrCoverage: less is quantized than Options.MinCoverage.
	ErrCoverage = convert.ErrCoverage
	// ErrVerify: the output, read again, is not what was written.
	ErrVerify = write.ErrVerify
)
