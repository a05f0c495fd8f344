// Package inspect describes a model: its structure, its quantized weights, what a conversion
// would do, and what is known to fail or to be slow in some runtime.
//
//	in := inspect.Model(m, onnxq.Options{})
//
// [Model] gets an open model, which it does not change, and returns an [Inspection], which
// the caller owns.
package inspect
