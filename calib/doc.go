// Package calib finds the range of values that integer codes shall cover, from a
// stream of batches, and the scale and zero point that follow from a range.
//
// # Ranges
//
// An [Observer] sees values and names a [Range]:
//
//   - [MinMax]: the least and the greatest value.
//   - [MovingAverage]: of the extremes of batches, m ← m·(1-p) + x·p, the first batch
//     as it is (Krishnamoorthi, Quantizing deep convolutional networks, section 3.1).
//   - [Percentile]: with the n values in order, counted from 0, the one at
//     i = min(⌊p/100·n⌋, n-1) and, mirrored, the one at n-1-i. It keeps all values.
//   - [Histogram] finds percentiles in bounded memory, off by a known part of
//     themselves, and the ranges of least divergence and least squared error.
//
// [ParseMethod] has names for them.
//
// # Codes
//
// A [Scheme] turns a range into [Params]: b bits, symmetric or not. Where codes go from
// lo to hi, in real arithmetic,
//
//	symmetric    lo, hi = -2^(b-1), 2^(b-1)-1    (narrow: lo = -hi)
//	             s = max(|min|, |max|) / hi      z = 0
//	asymmetric   lo, hi = 0, 2^b-1
//	             s = (max - min) / hi            z = clamp(rint(-min/s), lo, hi)
//
// with min ≤ 0 ≤ max: a range that does not hold 0 is widened to, lest the zero point
// be clamped and values lost. s is rounded to float32 and is at least 1e-10. Then
//
//	q = clamp(rint(x/s) + z, lo, hi)    x/s rounded to float32, ties to even
//	x ≈ (q - z) · s                     rounded to float32
//
// These are the definitions of the Rust crate entrenar 0.7, but that it rounds ties
// away from 0 and does not widen ranges. The units of ranges and scales are those of
// the values.
package calib
