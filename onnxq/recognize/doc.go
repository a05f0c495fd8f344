// Package recognize finds the quantized weights of a model, whichever tool wrote them, and
// decodes them.
//
//	for _, w := range recognize.Weights(model.Graph()) {
//		values := make([]float32, w.Elements())
//		err := w.Read(values, 0)
//	}
//
// [Weight] lists the forms that are known, from DequantizeLinear to MatMulNBits.
// [Weight.Read] decodes any part of a weight without the rest. Weights that operators
// compute with as codes, as MatMulInteger does, are listed too, but not decoded: they have
// an Obstacle.
package recognize
