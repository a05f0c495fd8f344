// Package recognize finds the quantized weights of a model, whichever tool wrote them, and decodes
// them.
//
//	for _, w := range model.Quantized() {
//		values := make([]float32, w.Elements())
//		err := w.Read(values, 0)
//	}
//
// [Weights] gets a [graph.Graph], which it only reads, and returns a [Weight] for each quantized
// weight. The results belong to the caller and stay valid while the model is open. Weight lists the
// known forms, from DequantizeLinear to MatMulNBits. [Weight.Read] decodes any part of a weight
// without the rest. Weights that operators read as codes, such as those of MatMulInteger, are listed
// but not decoded: they have an Obstacle.
//
// A [Recognizer] does constant folding for a single value, through the operators that decode weights.
// It notes codes, scales and zero points in a [Decoder]. Nothing is decoded before [Weight.Read].
package recognize
