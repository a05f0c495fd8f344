// Package restyle gives the quantized weights of a model another form.
//
//	report, err := restyle.Dequantize(ctx, "in.onnx", "float.onnx", restyle.Options{})
//
// [Dequantize] makes them float tensors again, [Restyle] moves codes, scales and zero points
// to other operators without computing them anew. Package recognize tells which weights a
// model holds in codes, whichever tool wrote them. The output is written, read again and
// compared before it takes its name.
package restyle
