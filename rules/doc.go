// Package rules reads documents with settings for single weights: a precision_info, an importance
// matrix, the names of a GGUF file, the ranges of activations.
//
//		precision, err := rules.ParsePrecision([]byte(`{"lm_head*": 8, "embed*": {"format": "float"}}`))
//		report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Precision: precision})
//
//	  - A [Precision] overrides options for weights, by name or glob.
//	  - An [Importance] weights the errors in each column of a weight, for ggml encodings.
//	  - [Names] maps names of tensors to names in a GGUF file.
//	  - [Ranges] has the ranges of activations that calibration found.
//	  - [MatchName] has the rules for globs.
//
// Each document is read from a file or from bytes. The result is immutable. Errors in JSON
// documents name the line and the column.
package rules
