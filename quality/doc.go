// Package quality measures how well numbers stand for others: the errors of a tensor, of
// its channels and groups; what errors theory expects; what outliers, scales, bits and
// granularity do to them.
//
// # Errors
//
// Of n values x and the y that stand for them, with e = x - y,
//
//	MSE       Σe²/n
//	MAE       Σ|e|/n
//	RMSE      √MSE
//	MaxError  max |e|
//	SQNR      10·log10(Σx²/Σe²) dB; +Inf if Σe² = 0, -Inf if only Σx² is, NaN of no values
//	Outliers  share of values with |e| above a threshold
//
// in the unit of x, its square, or dB. e is taken in float64, where it is exact but for
// the rounding of numbers 2^29 apart, and sums are compensated (Neumaier 1974), so that
// their relative error is near 2^-53 however many values there are; no error is too small
// to count. The Rust crate entrenar 0.7, whose measures these are, adds up in float32.
//
// # Theory
//
// A value within the range of codes is off by half a step at most. A full-scale sine has
// the SQNR 6.02·b + 1.76 dB with b bits (Bennett, Spectra of quantized signals, 1948);
// gaussian values have less, for their range is wide.
package quality
