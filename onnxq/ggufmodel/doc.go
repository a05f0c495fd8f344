// Package ggufmodel writes the weights of an ONNX model to a GGUF file, and reads weights from
// one.
//
// [NewPlan] gets an open model, which it does not change, and returns a [Plan] without reading
// weights; [Plan.Write] writes the file. [ReadWeights] does change its model: float tensors
// get their contents from a GGUF file.
package ggufmodel
