// Package ggml encodes rows of weights in the block encodings of the ggml library, which
// GGUF files contain, and decodes them. The bytes are the same as those of ggml's own
// quantization (ggml_quantize_chunk, version 0.21.0), with and without an importance of
// columns.
//
// An [Encoding] is immutable and shared. [Encoding.Quantize] and [Encoding.Dequantize] fill
// slices that the caller owns.
//
// # Encodings
//
// A row, the last dimension of a tensor, is cut into blocks. Each has codes and the numbers
// that decode them:
//
//	encoding  type  elements  bytes  bits   value of code q
//	F32          0         1      4  32
//	F16          1         1      2  16
//	BF16        30         1      2  16
//	Q4_0         2        32     18   4.5   d*(q-8)
//	Q4_1         3        32     20   5     d*q + m
//	Q5_0         6        32     22   5.5   d*(q-16)
//	Q5_1         7        32     24   6     d*q + m
//	Q8_0         8        32     34   8.5   d*q
//	IQ4_NL      20        32     18   4.5   d*values[q]
//	MXFP4       39        32     17   4.25  2^(e-127) * E2M1[q]
//	Q2_K        10       256     84   2.625 d*s*q - m*t         parts of 16, s and t of 4 bits
//	Q3_K        11       256    110   3.4375 d*(s-32)*(q-4)     parts of 16, s of 6 bits
//	Q4_K        12       256    144   4.5   d*s*q - m*t         parts of 32, s and t of 6 bits
//	Q5_K        13       256    176   5.5   d*s*q - m*t         parts of 32, s and t of 6 bits
//	Q6_K        14       256    210   6.5625 d*s*(q-32)         parts of 16, s an int8
//
// d and m are float16; s and t are the codes of a part's scale and min. Each product and sum is rounded
// to float32, in this order: d*s, then times the code; m*t; the difference. IQ4_NL's values are
// -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113. E2M1 is described in package mx; here,
// code 8 is 0.
//
// # Layout
//
// The fields of a block in order, numbers little-endian:
//
//	Q4_0 IQ4_NL  d 2  codes 16
//	Q4_1         d 2  m 2  codes 16
//	Q5_0         d 2  fifth bits 4  codes 16
//	Q5_1         d 2  m 2  fifth bits 4  codes 16
//	Q8_0         d 2  codes 32, int8
//	MXFP4        e 1  codes 16
//	Q2_K         scales 16  pairs 64  d 2  m 2
//	Q3_K         planes 32  pairs 64  scales 12  d 2
//	Q4_K         d 2  m 2  scales 12  halves 128
//	Q5_K         d 2  m 2  scales 12  planes 32  halves 128
//	Q6_K         halves 128  pairs 64  scales 16, int8  d 2
//
// with
//
//	codes        byte i has code i in its low half, code i+16 in the high one
//	fifth bits   32 bits, bit i is the highest of code i
//	halves       the low 4 bits: of each 64 codes, byte i of 32 has code i low, i+32 high;
//	             of Q6_K, of each 128 codes, byte i of 64 has code i low, i+64 high
//	pairs        2 bits: of each 128 codes, byte i of 32 has those of codes i, i+32, i+64
//	             and i+96, low bits first: the low ones of Q2_K and Q3_K, the high of Q6_K
//	planes       the highest bit: bit j of byte i has that of code 32j+i
//	scales Q2_K  byte i has s of part i low, t high
//	scales Q3_K  byte i of 8 has the low 4 bits of s of part i low, of part i+8 high; byte
//	             i of the other 4 the high 2 of parts i, i+4, i+8, i+12, low bits first
//	scales Q4_K  byte i of 4: s of part i and, in bits 6 and 7, the high 2 of s of part
//	             i+4; byte i of the next 4: t likewise; byte i of the last 4: the low 4 of
//	             s of part i+4 low, of t high. Q5_K has the same.
//
// # How codes are found
//
// Without an importance, Q4_0 and Q5_0 give the element of the largest magnitude the code 0, whatever
// its sign. Q8_0 gives it 127 or -127. Q4_1 and Q5_1 spread their codes from the least element to the
// greatest. d is rounded after the codes are found. Q8_0 rounds ties away from 0, the others up.
//
// The others search: each tries some ranges, finds the scale and min of the least weighted squares for
// the codes of each range, and keeps the best. [kernels.AffineSearch] and [kernels.SymmetricSearch]
// define the tries. The encodings differ in the weight of an element x. The mean of squares is that of
// its super-block; for Q4_0 … Q5_1, of its row:
//
//	          without importance   with importance p
//	Q2_K      |x|, errors not      p * sqrt(mean + x²)
//	          squared
//	Q3_K      x²                   p * sqrt(2*mean + x²)
//	Q4_K Q5_K |x| + root of the    p * sqrt(2*mean + x²)
//	          part's mean
//	Q6_K      x²                   p
//	IQ4_NL    x²                   p * sqrt(2*mean of its block + x²)
//	Q4_0 …    no search            p * sqrt(mean + x²)
//
// Scales and mins of parts are quantized too. Q2_K, Q4_K and Q5_K give the largest scale the last code,
// and likewise the largest min. Q3_K and Q6_K give the scale of the largest magnitude the least code.
// With an importance, all but Q6_K search for these codes instead. Then the codes of elements are found
// again, from the stored scales and mins. Where a scale is 0, the codes of the search stay, although
// they all decode to the same value.
//
// MXFP4's exponent is floor(log2(max|x|)) - 2, with the logarithm rounded to float32. Codes are those
// of the nearest value; of two, the first.
//
// All arithmetic is in float32 without fused multiply-adds, and sums of a block are in the order of its
// elements. So the bytes do not depend on the processor.
//
// Scales beyond float16 (65520 and more) are stored as infinity, as in the reference; their blocks
// decode to no numbers. The symmetric searches treat blocks below 1e-15 as zeros.
package ggml
