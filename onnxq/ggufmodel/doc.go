// Package ggufmodel writes the weights of a model to a GGUF file, and reads weights from
// one.
//
//	plan, err := ggufmodel.NewPlan(model, ggufmodel.Options{Mix: "Q4_K_M"})
//	report, err := plan.Write(ctx, "out.gguf")
//
// [NewPlan] gives each float tensor a type, a name and a shape in the file, [Plan.Write]
// encodes and writes them. [ReadWeights] goes the other way: the model's float tensors get
// the values of a file, and are converted or written like others. docs/gguf.md tells which
// weights get which type, and how shapes are reversed.
//
// [NewPlan] gets an open model, which it does not change, and returns a [Plan] without reading
// weights; [Plan.Write] writes the file. [ReadWeights] does change its model: float tensors
// get their contents from a GGUF file.
package ggufmodel
