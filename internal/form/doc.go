// Package form knows the form of a quantized weight in the model: the tensors of codes and
// scales, and the nodes that decode them when the model runs.
//
// [New] gets a name, a type, a shape and a [discover.Choice] and returns a [Weight], which
// is immutable. [Weight.Quantize] describes it for package quantize, without protobuf.
// [Weight.Build] adds tensors and nodes to a [Builder], which the caller owns. [Operators]
// changes a [graph.Copy], where operators of ONNX Runtime read codes themselves.
package form
