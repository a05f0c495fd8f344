// Package onnxq quantizes the weights of ONNX models.
//
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Bits: 4, Block: 32})
//
// A float weight W that a MatMul, Gemm or another of [KnownOps] reads becomes codes,
// with scales and possibly zero points, and nodes, mostly a DequantizeLinear, that make
// W out of them where the model runs:
//
//	W_i4, W_scale [, W_zp]  →  DequantizeLinear  →  W
//
// [Convert] does everything. Its steps are [Open], which reads the structure of a model,
// [Model.Plan], which decides what becomes of every float tensor, and [Plan.Convert],
// which does it and tells how large the errors are. Memory does not grow with the model,
// and the output is the same at any number of threads.
//
// What can be asked for is in package spec, settings for single weights are in rules.
// Other jobs have packages of their own: inspect, analyze, compare, restyle, ggufmodel
// and recognize. docs/conversion.md tells what a conversion changes in a model,
// docs/internals.md how the stages work.
package onnxq
