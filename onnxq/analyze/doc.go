// Package analyze measures how well formats suit each weight of a model, and recommends one
// for each within a bound of the error or the size.
//
//	a, err := analyze.Model(ctx, m, analyze.Options{MaxError: 0.05})
//
// [Model] gets an open model, which it does not change, and returns an [Analysis], which the
// caller owns. Its Precision is ready for onnxq.Options.
package analyze
