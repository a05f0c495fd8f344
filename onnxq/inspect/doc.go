// Package inspect tells what a model holds, what a conversion would do with it, and what
// is known to fail or to be slow where it runs.
//
//	found := inspect.Model(model, onnxq.Options{Block: 32})
//	for _, h := range found.Hazards {
//		fmt.Println(h.Runtime, h.Effect, h.Text, h.Where)
//	}
//
// An [Inspection] has the versions, inputs, outputs, operators and sizes of the model, its
// quantized weights, and the plan of the conversion that the options ask for. No model is
// run: a [Hazard] is found in the structure.
//
// [Model] gets an open model, which it does not change, and returns an [Inspection], which
// the caller owns.
package inspect
