// Package inspect describes a model, the conversion that some options ask for, and known problems
// (hazards) in the runtimes that may run the model.
//
//	found := inspect.Model(model, onnxq.Options{Block: 32})
//	for _, h := range found.Hazards {
//		fmt.Println(h.Runtime, h.Effect, h.Text, h.Where)
//	}
//
// [Model] gets an open model, which it does not change, and returns an [Inspection], which the caller
// owns. An Inspection has the versions, inputs, outputs, operators and sizes of the model, its
// quantized weights, and the plan of the conversion. Hazards are found in the structure; no model is
// run.
package inspect
