// Package intops replaces operators that compute with codes by equivalent float operators, for models
// as ONNX Runtime's quantize_dynamic and quantize_static write them:
//
//	x ── DynamicQuantizeLinear ── MatMulInteger(codes) ── Cast ── Mul(scales) ── y
//	x ── MatMul(DequantizeLinear(codes)) ── y
//
// [Float] gets a graph, which it only reads, and returns a new one, which the caller owns. There,
// weights are decoded by DequantizeLinear, so that packages recognize and restyle find them. It
// replaces a pattern only if it is complete: each value is decoded with the scale and the zero point
// that it was quantized with. Everything else is copied.
//
// [Weights] lists the quantized weights of a model, including the weights of such operators.
package intops
