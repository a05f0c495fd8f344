// Package lazy has constant tensors whose elements are computed when they are read: a decoded weight
// takes no memory, however large it is.
//
// A [Tensor] is made from stored bytes by [Stored], or from other tensors by an operation such as
// [Dequantized]. It is immutable, and several goroutines may read it at once, each with its own
// [Arena]. The caller owns the buffer that it reads into.
package lazy
