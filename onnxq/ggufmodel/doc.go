// Package ggufmodel writes the weights of a model to a GGUF file, and reads weights from a GGUF file.
//
//	plan, err := ggufmodel.NewPlan(model, ggufmodel.Options{Mix: "Q4_K_M"})
//	report, err := plan.Write(ctx, "out.gguf")
//
// [NewPlan] gets an open model, which it does not change, and returns a [Plan], which the caller owns:
// a type, a name and a shape in the file for each float tensor. It reads no weights. [Plan.Write]
// encodes the weights and writes the file.
//
// [ReadWeights] goes the other way and changes its model: float tensors get their contents from a GGUF
// file. The model is then converted or written like any other. docs/gguf.md says which weights get
// which type, and how shapes are reversed.
package ggufmodel
