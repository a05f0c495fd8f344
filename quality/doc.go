// Package quality measures the error of quantized values: of a tensor, of its channels and groups. It
// compares measured errors with theory, and shows the effect of outliers, scales, bits and granularity.
// [Measure] gets values and their dequantized values, which it only reads, and returns [Stats].
//
// # Errors
//
// For n values x and their dequantized values y, with e = x - y,
//
//	MSE       Σe²/n
//	MAE       Σ|e|/n
//	RMSE      √MSE
//	MaxError  max |e|
//	SQNR      10·log10(Σx²/Σe²) dB; +Inf if Σe² = 0, else -Inf if Σx² = 0; NaN if n = 0
//	Outliers  share of values with |e| above a threshold
//
// e is computed in float64, where it is exact unless x and y differ by a factor of 2^29
// or more. Sums are compensated (Neumaier 1974): their relative error is near 2^-53 for
// any number of values, and no error is too small to count. The Rust crate entrenar 0.7
// has the same measures, but adds in float32.
//
// # Theory
//
// The error of a value within the range of the codes is at most half a scale. A full-scale
// sine in b bits has the SQNR 6.02·b + 1.76 dB (Bennett, Spectra of quantized signals,
// 1948); Gaussian values have less, because their range is wide.
package quality
