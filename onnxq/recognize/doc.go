// Package recognize finds the quantized weights of a model, whichever tool wrote them, and
// decodes them.
//
//	for _, w := range model.Quantized() {
//		values := make([]float32, w.Elements())
//		err := w.Read(values, 0)
//	}
//
// [Weight] lists the forms that are known, from DequantizeLinear to MatMulNBits.
// [Weight.Read] decodes any part of a weight without the rest. Weights that operators
// compute with as codes, as MatMulInteger does, are listed too, but not decoded: they have
// an Obstacle.
//
// [Weights] gets a [graph.Graph] and returns a [Weight] for each. A [Recognizer] tells what
// constant a single value is: it folds the operators that decode weights, such as
// DequantizeLinear, and notes the parts in a [Decoder]. Nothing is decoded until
// [Weight.Read] is called. The graph is only read; results belong to the caller and stay
// valid while the model is open.
package recognize
