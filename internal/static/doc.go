// Package static decides which values of a model get a QuantizeLinear and a DequantizeLinear,
// when the ranges of its activations are known, and computes their scales and zero points.
//
// [Find] takes a graph, the ranges and a [Placement], and returns a [Plan], which others must not
// change: activations, stored tensors and biases. It goes through the nodes in the order of the
// model, as ONNX Runtime's quantize_static does, and each operator says what becomes of its
// inputs and outputs. No content is read for it. Scales of stored tensors, and the codes of
// biases and of 16 bits, are computed when they are read.
package static
