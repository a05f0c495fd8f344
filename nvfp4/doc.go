// Package nvfp4 quantizes weights to NVFP4: 4-bit floating-point numbers with an 8-bit scale
// for each block and a float32 scale for the tensor.
//
// # Codes
//
// A code is an E2M1 number: a sign (bit 3), two bits of exponent and one of fraction.
//
//	code       0    1    2    3    4    5    6    7
//	value      0  0.5    1  1.5    2    3    4    6
//
// Codes 8 … 15 are the same with a minus sign; there is neither NaN nor infinity.
// A number becomes the nearest value, ties to the even code, and a number beyond 6
// becomes 6. The number -0 becomes code 0, but a negative number that rounds to 0
// becomes code 8.
//
// Packed (ONNX type FLOAT4E2M1), the codes of the whole tensor in C order fill
// bytes, two each: the element of even index in the low half.
//
// # Scales
//
// A block is a run of elements along the reduction axis, 16 by NVIDIA's definition; other lengths work
// as well. Its scale is an E4M3 number (ONNX type FLOAT8E4M3FN, see package fp8). All steps are in
// float32, and no division is replaced by a multiplication.
//
//	tensor scale t = max|w| / 2688         over the tensor; 1 if that is 0
//	block scale  s = max|w| / (6*t)        over the block; 1 if that is 0
//	             s = E4M3(clamp(s, 2^-9, 448))
//	code           = E2M1(w / (s*t))
//
// where 2688 is 448*6, the largest E4M3 number times the largest E2M1 number. A code of
// value v represents
//
//	(s*t) * v
//
// The product in parentheses is rounded to float32, the other to float32 and then to the type of the
// weight. ONNX has that from opset 23 on: one DequantizeLinear decodes the block scales with the tensor
// scale, another decodes the codes with the result.
//
// ModelOpt 0.47.0 does the same (nvfp4_exporter and quant_utils; see also package quantutil). A block
// of zeros therefore has the scale code 0x38, which is 1. If t is subnormal, s*t can be 0; codes are
// then 7, or 15 for negative weights, and represent 0.
//
// # Streaming
//
// [Encode] quantizes a tensor at once. A [Codec] works on pieces: find the largest magnitude of the
// whole weight with ObserveColumns or ObserveBlocks, turn it into the tensor scale with [TensorScale],
// then pass the pieces again, block by block. A Codec is immutable; the caller owns all slices.
package nvfp4
