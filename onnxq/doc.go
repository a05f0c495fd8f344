// Package onnxq quantizes the weights of ONNX models.
//
//	report, err := onnxq.Convert(ctx, "in.onnx", "out.onnx", onnxq.Options{Bits: 4, Block: 32})
//
// A float weight W that a MatMul, Gemm or another of [KnownOps] reads is replaced by codes, scales
// and possibly zero points. Nodes, usually one DequantizeLinear, decode them to W when the model
// runs:
//
//	W_i4, W_scale [, W_zp]  →  DequantizeLinear  →  W
//
// [Convert] does everything. It consists of three steps:
//
//   - [Open] reads the structure of a model,
//   - [Model.Plan] decides for every float tensor whether and how it is quantized,
//   - [Plan.Convert] writes the output and returns a [Report] with the errors.
//
// No step changes the [Model] or its file. Memory does not grow with the model. The output does not
// depend on the number of threads.
//
// Package spec has the formats and other settings, package rules the settings for single weights.
// Other tasks have packages of their own: inspect, analyze, sensitivity, calibrate, compare, diff,
// restyle, report and ggufmodel. Package verify compares a converted model with the float one.
//
// docs/conversion.md describes what a conversion changes in a model, docs/internals.md how the
// stages work.
package onnxq
