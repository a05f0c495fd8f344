// Package reach follows a stored tensor to the operators that compute with it. On the way are Transpose,
// Reshape, Cast and similar nodes, and calls of functions.
//
// [Of] gets a [graph.Graph], which it only reads, and a value. It returns a [Reach], which the caller
// owns. For each operator in it, [Leaf.Operand] says whether the tensor is a weight there, and over
// which axis the operator sums.
package reach
