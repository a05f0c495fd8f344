// Package onnxq quantizes the weights of ONNX models.
//
// A float weight W that a MatMul, Gemm or another of [KnownOps] reads becomes
// codes, with scales and possibly zero points, and nodes, mostly a DequantizeLinear,
// that make W out of them where the model runs:
//
//	W_i4, W_scale [, W_zp]  →  DequantizeLinear  →  W
//
// The node's output keeps the name of the weight, so nothing else in the graph
// changes. Scales are shared by blocks of elements along the axis that the
// operator sums over, wherever that lies, and have the weight's own type. Several
// axes that lie together count as one; if the axes that blocks run along are none of
// the weight's by itself, the codes have another shape, and a Reshape follows. How
// codes and scales follow from a block is told in package int4.
//
// [Convert] does everything. Its steps are there for those who want to look or
// choose in between: [Open] reads the structure of a model, [Model.Plan]
// decides what becomes of every float tensor and how large the output will be,
// and [Plan.Convert] does it and tells how large the errors are.
//
// Weights are read, quantized and written in tiles, by several workers, so that
// memory does not grow with the model, and the output is the same at any number
// of workers. It appears under its name once it is complete; then it is opened
// again and compared with what was written.
//
// Other functions look at models, quantized by any tool, and change them:
// [Model.Inspect] tells what a model holds, [Model.Analyze] which formats suit it,
// [Model.QuantizedWeights] what it holds in codes. [Dequantize] and [Restyle] give
// quantized weights another form, [Model.PlanGGUF] leads to a GGUF file and
// [Model.ReadWeights] back, [Diff] and [MatchWeights] compare models.
package onnxq
