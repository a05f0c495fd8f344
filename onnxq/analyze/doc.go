// Package analyze finds a format for each weight of a model: the smallest output within a limit of the
// error, or the least error within a limit of the size.
//
//	analysis, err := analyze.Model(ctx, model, analyze.Options{MaxError: 0.06})
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Precision: analysis.Precision})
//
// [Model] gets an open model, which it does not change. It quantizes every weight in every candidate
// format and measures errors and bytes. It returns an [Analysis], which the caller owns: these
// numbers, the recommendation as a precision_info for onnxq.Options, and how far from the optimum it
// can be. docs/analysis.md defines the error.
package analyze
