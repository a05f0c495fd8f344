// Package mx quantizes weights to the microscaling formats of the OCP Microscaling
// Formats (MX) Specification 1.0: blocks of 32 small floating-point numbers that
// share a scale, which is a power of two.
//
// # Elements
//
//	format       element  bits  largest  emax
//	MXFP8 E4M3   E4M3FN      8      448     8
//	MXFP8 E5M2   E5M2        8    57344    15
//	MXFP4        E2M1        4        6     2
//
// where 2^emax is the largest power of two among the numbers. Package fp8 describes the elements of 8
// bits. E2M1 has a sign (bit 3), two bits of exponent and one of fraction: codes 0 … 7 represent
//
//	0  0.5  1  1.5  2  3  4  6
//
// and codes 8 … 15 the same with a minus sign, including -0. There is no NaN and no infinity. In packed
// form (ONNX type FLOAT4E2M1), elements of even index, counted over the whole tensor in C order, are in
// the low half of a byte.
//
// # Scales
//
// A scale is an E8M0 number (ONNX type FLOAT8E8M0): an exponent without sign and fraction. Code c
// represents 2^(c-127), from 2^-127 to 2^127. Code 255 is NaN. There is no 0.
//
// A block is a run of elements along the reduction axis. Its largest magnitude amax determines the
// exponent
//
//	e = floor(log2(amax)) - emax          the specification's rule, OCP
//	e = ceil(log2(amax / largest))        ModelOpt's rule for MXFP8, Reference
//
// clamped to -127 … 127, and -127 if amax is 0. OCP is the default for MXFP4. It clamps elements that
// are up to a third larger than the largest number. Reference is the default for MXFP8 and clamps
// nothing. It rounds the quotient and the logarithm to the type of the weight, so a quotient slightly
// above a power of two may count as that power. If amax would decode beyond the range of that type, e
// is 1 less.
//
// An element becomes the number nearest to w/2^e, ties to the even code, at most the largest. The sign
// of 0 is kept. The code represents that number times 2^e, rounded to the type of the weight. In ONNX
// that is DequantizeLinear with scales of FLOAT8E8M0 and the type as output_dtype, from opset 24.
//
// A [Codec] is a plain value, safe for concurrent use. The caller owns all slices.
package mx
