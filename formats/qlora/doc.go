// Package qlora quantizes weights to the two tables of 16 values that QLoRA and its
// library bitsandbytes use: NF4 and FP4.
//
// # Tables
//
// Code i of NF4 represents entry i of
//
//	-1                   -0.6961928009986877  -0.5250730514526367   -0.39491748809814453
//	-0.28444138169288635 -0.18477343022823334 -0.09105003625154495   0
//	 0.07958029955625534  0.16093020141124725  0.24611230194568634   0.33791524171829224
//	 0.44070982933044434  0.5626170039176941   0.7229568362236023    1
//
// These are quantiles of the normal distribution, scaled to reach from -1 to 1, including 0 (Dettmers
// et al., QLoRA, appendix E). FP4 has a sign (bit 3), two bits of exponent and one of fraction, in
// units of 1/12: codes 0 … 7 represent
//
//	0  0.0052083333  8/12  1  4/12  6/12  2/12  3/12
//
// and codes 8 … 15 the same with a minus sign. Values are rounded to float32.
//
// # Weights
//
// A block has the scale max|w|, a number of the weight's type. An element becomes the code of the value
// nearest to w/scale, rounded to float32. Midway between two values, in exact arithmetic, the value
// nearer to 0 wins. FP4's code 8, -0, is not used. A block of zeros has the scale 0 and the codes of 0.
// The code represents value * scale, rounded to the type.
//
// With Reciprocal, an element is multiplied by 1/scale, as in ONNX Runtime's MatMulBnb4Quantizer and
// bitsandbytes. It is then compared with their limits: the midpoints, rounded (those of FP4 to a few
// decimals). Small negative elements then get the code 8.
//
// Blocks usually have 64 elements. bitsandbytes cuts them from the flat tensor, so they may reach
// across rows. A [Codec] cuts them along one axis. The two agree if blocks run along the last axis and
// the block size divides it. A Codec is a plain value; the caller owns all slices.
//
// A [Tensor] has blocks of the flat tensor, in the layouts of bitsandbytes and of the Rust crate
// entrenar: either table, or the crate's linear code. Its scales may be quantized too: by [Linear8] in
// the crate's format, by [Dynamic8] in that of bitsandbytes.
//
// ONNX has no such type. A Gather from the table and a product decode the values. com.microsoft has
// MatMulBnb4, which reads codes packed two per byte, the first in the high half.
package qlora
