// Package form knows what decodes a weight where the model runs: the tensors of codes and
// scales and their shapes, and the nodes that make the weight out of them.
//
// A [Weight] follows from a name, a type, a shape and a [discover.Choice]. It is finished
// when [New] returns it, and [Weight.Quantize] says the same to package quantize, in
// numbers alone. [Weight.Build] adds tensors and nodes to a [Builder], [Operators] changes
// the operators that read codes themselves.
package form
