// Package qat quantizes in training: values are replaced by what their codes stand for,
// and gradients pass as if they were not.
//
// # Forward
//
// A [FakeQuantizer] finds scales and zero points from the first tensor it sees, by the
// extremes of the tensor, of each of its channels or of each group; symmetric codes are
// -(2^(b-1)-1) … 2^(b-1)-1, the others 0 … 2^b-1 (package calib). Then
//
//	q = rint(x/s) + z            ties to even
//	y = (clamp(q, lo, hi) - z)·s
//
// as QuantizeLinear and DequantizeLinear of ONNX have it, so that what was trained is what
// runs. PyTorch's fake_quantize multiplies by a rounded 1/s, so it gives another code where
// x/s is within the rounding of a tie, and only there.
//
// # Backward
//
// The derivative of y by x is 0 almost everywhere. The straight-through estimator takes it
// for 1 (Bengio et al., Estimating or propagating gradients through stochastic neurons,
// 2013); the clamped one for 1 where lo ≤ q ≤ hi and 0 elsewhere, as PyTorch does: a value
// beyond the codes has no effect on y.
package qat
