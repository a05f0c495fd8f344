// Package actpairs decides which values of a model get a QuantizeLinear and a DequantizeLinear,
// when the ranges of its activations are known, and computes their scales and zero points.
//
// [Find] takes a graph, the ranges and a [target.Placement]. It returns a [Plan] of activations,
// stored tensors and biases, which the caller must not change. Find visits nodes in the order of
// the model, as ONNX Runtime's quantize_static does. A rule for each operator marks inputs and
// outputs.
//
// Find reads no content. Scales of stored tensors, codes of biases and 16-bit codes are computed
// when they are read.
package actpairs
