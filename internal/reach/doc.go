// Package reach follows a stored tensor to the operators that compute with it, through
// Transpose, Reshape, Cast and similar nodes and through calls of functions.
//
// [Of] gets a [graph.Graph] and a value and returns a [Reach], which the caller owns. For
// each operator in it, [Leaf.Operand] tells whether the tensor is a weight there, and along
// which axis the operator sums over it. The graph is only read.
package reach
