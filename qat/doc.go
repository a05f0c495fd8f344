// Package qat is for quantization-aware training: it fake-quantizes values in the forward
// pass and estimates gradients in the backward pass.
//
// # Forward
//
// A [FakeQuantizer] takes scales and zero points from the minimum and maximum of the first
// tensor, of each of its channels or of each group (package calib). Symmetric codes are
// -(2^(b-1)-1) … 2^(b-1)-1, asymmetric codes 0 … 2^b-1. Then
//
//	q = rint(x/s) + z            ties to even
//	y = (clamp(q, lo, hi) - z)·s
//
// QuantizeLinear and DequantizeLinear of ONNX compute the same, so the exported model behaves like the
// trained one. PyTorch's fake_quantize multiplies by a rounded 1/s instead, so its codes differ where
// x/s is within rounding of a tie. The caller owns the quantizer and all slices.
//
// # Backward
//
// The derivative of y by x is 0 almost everywhere. The straight-through estimator replaces
// it by 1 (Bengio et al., Estimating or propagating gradients through stochastic neurons,
// 2013). The clamped estimator replaces it by 1 if lo ≤ q ≤ hi and by 0 elsewhere, because
// clamped values have no effect on y; PyTorch does the same.
package qat
