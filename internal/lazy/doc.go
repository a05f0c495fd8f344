// Package lazy has constant tensors whose elements are computed when they are read: a
// decoded weight takes no memory, however large it is.
//
// A [Tensor] comes from stored bytes by [Stored], or from other tensors by an operation
// such as [Dequantized]. It is immutable, and several goroutines may read it at once, each
// with an [Arena] of its own. The reader owns the buffer that is filled.
package lazy
