// Package rules reads the documents that say something of single weights: a
// precision_info, an importance matrix, the names of a GGUF file, the ranges of activations.
//
//	precision, err := rules.ParsePrecision([]byte(`{"lm_head*": 8, "embed*": {"format": "float"}}`))
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Precision: precision})
//
// A [Precision] overrides options for weights, by name or glob. An [Importance] weighs the
// errors in each column of a weight, for the encodings of ggml. [Names] says what tensors
// are called in a GGUF file. [Ranges] are what calibrating found. [MatchName] has the rules for globs. Errors in JSON documents
// name the line and the column.
//
// Each is loaded from a file, with errors that name the place, and is immutable afterwards.
package rules
