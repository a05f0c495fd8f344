// Package intops turns operators that compute with codes into the float operators that they
// stand for, as ONNX Runtime's quantize_dynamic and quantize_static write them:
//
//	x ── DynamicQuantizeLinear ── MatMulInteger(codes) ── Cast ── Mul(scales) ── y
//	x ── MatMul(DequantizeLinear(codes)) ── y
//
// [Float] gets a graph, which stays as it is, and returns another, in which weights are decoded
// by DequantizeLinear, so that packages recognize and restyle find them. It takes a pattern only
// if it is complete: each value is decoded with the scale and the zero point that it was
// quantized with. All else stays.
//
// [Weights] lists the quantized weights of a model, those of such operators included.
package intops
