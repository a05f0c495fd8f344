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
// which are quantiles of the normal distribution, scaled to reach from -1 to 1, with 0
// among them (Dettmers et al., QLoRA, appendix E). FP4 is a sign (bit 3), two bits of
// exponent and one of fraction, in units of 1/12: codes 0 … 7 represent
//
//	0  0.0052083333  8/12  1  4/12  6/12  2/12  3/12
//
// and codes 8 … 15 for the same with a minus sign. Values are rounded to float32.
//
// # Weights
//
// A block has the scale max|w|, which is a number of the weight's type. An element
// becomes the code of the value nearest to the quotient w/scale, which is rounded to
// float32; one midway between two values, in exact arithmetic, goes to the one nearer to
// 0. FP4's code 8, -0, is not used. A block of zeros has the scale 0, and the codes of 0.
// The code represents value * scale, rounded to the type.
//
// With Reciprocal an element is multiplied by 1/scale, as ONNX Runtime's MatMulBnb4Quantizer and
// bitsandbytes do, and compared with their limits, which are these midpoints rounded, those of FP4
// to a few decimals. Small negative elements then get the code 8.
//
// Blocks are of 64 elements by custom. bitsandbytes takes them from the flat tensor, so
// that they may reach across rows; a [Codec] takes them along one axis. They are the
// same where the block size divides the last axis and blocks run along it.
//
// A [Tensor] is blocks of the flat tensor as bitsandbytes and the Rust crate entrenar hold
// them, in either table or in the crate's linear code, and its scales may be quantized
// themselves: [Linear8] in the crate's way, [Dynamic8] in bitsandbytes'.
//
// ONNX has no such type. The values fit a Gather from the table and a product;
// com.microsoft has MatMulBnb4, which reads codes packed two per byte, the first in the
// high half.
package qlora
