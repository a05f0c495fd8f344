// Package analyze finds a format for each weight of a model, so that the output is the
// smallest within a bound of the error, or has the least error within a bound of the size.
//
//	analysis, err := analyze.Model(ctx, model, analyze.Options{MaxError: 0.06})
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Precision: analysis.Precision})
//
// It quantizes every weight in every candidate format, and measures errors and bytes. An
// [Analysis] has these numbers, the recommendation as a precision_info, and how far from
// the optimum that can be. docs/analysis.md tells what the error means.
//
// [Model] gets an open model, which it does not change, and returns an [Analysis], which the
// caller owns. Its Precision is ready for onnxq.Options.
package analyze
