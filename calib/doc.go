// Package calib calibrates: it finds a range for a stream of values, and the scale and
// zero point of integer codes that cover the range.
//
// # Ranges
//
// An [Observer] takes values and returns a [Range]:
//
//   - [MinMax]: the minimum and maximum.
//   - [MovingAverage]: the moving average of the minimum and maximum of batches,
//     m ← m·(1-p) + x·p, starting with the first batch (Krishnamoorthi, Quantizing deep
//     convolutional networks, section 3.1).
//   - [Percentile]: the values at i = min(⌊p/100·n⌋, n-1) and at n-1-i of n sorted values,
//     counted from 0. It keeps all values in memory.
//   - [Histogram]: percentiles in bounded memory, with a bounded relative error, and the
//     ranges with the least divergence and with the least squared error.
//
// [ParseMethod] finds them by name. The caller owns the observer and the values; an observer keeps no
// slice that it gets.
//
// # Codes
//
// A [Scheme] turns a range into [Params]. With b bits and codes from lo to hi, in real
// arithmetic,
//
//	symmetric    lo, hi = -2^(b-1), 2^(b-1)-1    (narrow: lo = -hi)
//	             s = max(|min|, |max|) / hi      z = 0
//	asymmetric   lo, hi = 0, 2^b-1
//	             s = (max - min) / hi            z = clamp(rint(-min/s), lo, hi)
//
// with min ≤ 0 ≤ max: a range without 0 is extended to 0, because a clamped zero point
// would lose values. The scale s is rounded to float32 and is at least 1e-10. Then
//
//	q = clamp(rint(x/s) + z, lo, hi)    x/s rounded to float32, ties to even
//	x ≈ (q - z) · s                     rounded to float32
//
// The Rust crate entrenar 0.7 has the same definitions, except that it rounds ties away
// from 0 and does not extend ranges. Ranges and scales have the unit of the values.
package calib
