// Package int4 quantizes weights to integer codes of 2, 4 or 8 bits.
//
// # Blocks
//
// A weight is seen as [outer, K, inner] and cut along K into blocks of equal length. The last block is
// shorter if the block size does not divide K; it is not padded. With inner = 1 a block is a contiguous
// piece of a row, else a piece of a column. It has one scale and, in some formats, one zero point. The
// scales of a weight have the shape [outer, ceil(K/block), inner].
//
// # Codes
//
// With b bits, signed codes are -2^(b-1) … 2^(b-1)-1 and unsigned ones 0 … 2^b-1. Code q
// of a block with scale s and zero point z represents
//
//	(q - z) * s
//
// In memory a code is a byte, a signed one in two's complement; a zero point
// likewise. Packed (ONNX types INT2, UINT2, INT4, UINT4, INT8, UINT8), the
// codes of the whole tensor in C order fill bytes from the lowest bits up:
// element i of a 4-bit tensor is bits 4*(i%2) … 4*(i%2)+3 of byte i/2. The
// unused bits of the last byte are 0.
//
// # Scales
//
// Every step below is rounded to nearest, ties to even, in the arithmetic of
// Codec.Type: float32 or float16. For BFloat16 it is float32, and only the scale is
// then rounded to bfloat16. Divisions are not replaced by multiplications.
//
// Symmetric formats scale by the block's largest magnitude:
//
//	s = max|w| / (2^(b-1)-1)
//	q = clamp(rint(w/s), -2^(b-1), 2^(b-1)-1)            signed, z = 0
//	q = that + 2^(b-1)                                   unsigned, z = 2^(b-1)
//
// Formats with a zero point scale by the block's range, widened to hold 0 so
// that 0 is exact and z needs no clamp that loses values:
//
//	lo, hi = min(0, min w), max(0, max w)
//	s = (hi-lo) / (2^b-1)          hi/(2^b-1) - lo/(2^b-1) if hi-lo overflows
//	z = clamp(rint(-lo/s), 0, 2^b-1)
//	q = clamp(rint(w/s) + z, 0, 2^b-1)
//
// and the signed ones have 2^(b-1) subtracted from both z and q.
//
// Some exceptions keep every scale useful:
//
//   - A block of zeros has s = 1e-5, or with a zero point hi-lo = 1e-5.
//   - In float32 and bfloat16 s is at least 2^-126, the smallest normal number:
//     runtimes may treat smaller ones as 0.
//   - In float16 a scale below 1e-5, which is subnormal and has few bits, is not
//     rounded to nearest but up, so that the largest weights are not clipped.
//   - If the code farthest from z, in a symmetric format the farthest that
//     occurs, would stand for more than the largest number of the type, s is
//     lowered to the largest value that prevents it.
//
// NVIDIA ModelOpt's quant_tensor (see package quantutil) gives the same codes
// and scales for symmetric formats of float32 and float16, but has one exception
// only, a floor of 1e-5 under every scale: at 4 bits it zeroes blocks of weights
// below 5e-6 and coarsens those below 7e-5. It leaves scales of bfloat16 weights
// in float32. With a zero point it does not widen the range, so blocks that are
// all positive or all negative saturate.
//
// # Streaming
//
// [Encode] quantizes a tensor at once. A [Codec] works on pieces:
//
//  1. set the ranges of the blocks to 0,
//  2. pass every piece of the weight to ObserveColumns or ObserveBlocks,
//  3. turn the ranges into scales with Scales,
//  4. pass the pieces again to EncodeColumns or EncodeBlocks.
//
// The result does not depend on how the weight was cut into pieces.
//
// A Codec is immutable. The caller owns all slices; methods write results into them and keep none.
package int4
