package restyle_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

func ExampleDequantize() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Block: 32}); err != nil {
		log.Fatal(err)
	}
	report, err := restyle.Dequantize(ctx, out, out+".float", restyle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range report.Weights {
		fmt.Printf("%s: %s to %s, %d to %d bytes\n", w.Name, w.CodeType, w.NewForm, w.Bytes, w.OutBytes)
	}
	// Output:
	// w0: INT4 to float, 3840 to 24576 bytes
	// w1: INT4 to float, 3840 to 24576 bytes
	// w2: INT4 to float, 640 to 4096 bytes
}

func ExampleRestyle() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Block: 32, Style: spec.NBits}); err != nil {
		log.Fatal(err)
	}
	report, err := restyle.Restyle(ctx, out, out+".dq", spec.DQ, restyle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range report.Weights {
		fmt.Printf("%s: %s to %s\n", w.Became, w.Form, w.NewForm)
	}
	// Output:
	// w0: MatMulNBits to DequantizeLinear
	// w1: MatMulNBits to DequantizeLinear
	// w2: MatMulNBits to DequantizeLinear
}
