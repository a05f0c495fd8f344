package onnxq

import (
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/write"
)

// Errors wrap one of these, with the file and the tensor, node or offset in the
// message, which is one line.
var (
	// ErrFormat: the file is no ONNX model.
	ErrFormat = modelfile.ErrFormat
	// ErrTensor: type, dimensions and content of a tensor do not fit together, or
	// its external data is missing or out of bounds.
	ErrTensor = modelfile.ErrTensor
	// ErrModel: the graph makes no sense.
	ErrModel = graph.ErrModel
	// ErrTarget: the output cannot be written.
	ErrTarget = modelfile.ErrTarget
	// ErrStrict: Options.Strict wants a weight quantized that cannot be.
	ErrStrict = discover.ErrStrict
	// ErrCoverage: less is quantized than Options.MinCoverage wants.
	ErrCoverage = convert.ErrCoverage
	// ErrVerify: the output does not hold what was written to it.
	ErrVerify = write.ErrVerify
)
