// Package fp8 reads and writes the floating-point types of 8 bits that ONNX has,
// and quantizes weights to them.
//
// # Codes
//
// A code is a byte: a sign (bit 7), an exponent e and a fraction m, from the highest bit
// down. With a fraction of f bits and a bias b it represents
//
//	(-1)^sign * 2^(e-b) * (1 + m/2^f)    if e > 0
//	(-1)^sign * 2^(1-b) * (m/2^f)        if e = 0
//
// with these parameters and exceptions:
//
//	format    e bits  f  bias  largest  least normal  least number  0x80  NaN              infinity
//	E4M3FN         4  3     7      448          2^-6          2^-9    -0  0x7f, 0xff       none
//	E5M2           5  2    15    57344         2^-14         2^-16    -0  0x7d…7f, 0xfd…ff  0x7c, 0xfc
//	E4M3FNUZ       4  3     8      240          2^-7         2^-10   NaN  0x80             none
//	E5M2FNUZ       5  2    16    57344         2^-15         2^-17   NaN  0x80             none
//
// E4M3FN and E5M2 are E4M3 and E5M2 of the OCP 8-bit Floating Point Specification;
// the FNUZ pair, which has no infinity and no -0, is defined by the ONNX standard
// (its page "Float stored in 8 bits").
//
// # Casts
//
// A number becomes the nearest, ties to the even code. A number more than half a step beyond the
// largest becomes the largest, with its sign, if the cast saturates (attribute saturate of ONNX's
// Cast). Otherwise it becomes NaN, in E5M2 infinity. A tie at half a step becomes the largest if that
// code is even. Infinities become the largest if the cast saturates. NaN stays NaN. Callers round a
// float64 to float32 first, as ONNX's reference, ml_dtypes and PyTorch do.
//
// # Weights
//
// A [Codec] is a plain value, safe for concurrent use; the caller owns all slices. It divides each
// block by a scale, of the type of the weight, that maps its largest magnitude to the format's largest
// number:
//
//	scale = max|w| / largest, 1 if that is 0
//	code  = saturating cast of w/scale to the format
//
// The scale is rounded to nearest, ties to even, first to float32, then to its type. It is a normal
// number, except in float16: there, a scale below 2^-14 is rounded up to the next multiple of 2^-24.
// It is lowered by one place if largest times the scale, rounded to the type, would be infinite.
//
// The quotient w/scale is rounded to float32, also for float16 and bfloat16 weights. The code
// represents scale * value, rounded to the type. That is ONNX's DequantizeLinear: per tensor or channel
// from opset 19, in blocks from 21.
package fp8
