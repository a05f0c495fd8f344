// Package restyle stores the quantized weights of a model in another form.
//
//	report, err := restyle.Dequantize(ctx, "in.onnx", "float.onnx", restyle.Options{})
//
// [Dequantize] makes them float tensors again. [Restyle] moves codes, scales and zero points
// to other operators without changing their values. Both find the quantized weights, whichever
// tool wrote them. Both get the names of two files and return a [Report], which the caller owns.
// The input is never changed; the output is read again and compared before it gets its name.
package restyle
