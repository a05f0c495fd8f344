package onnxq_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/modeltest"
	"onnxquant/onnxq"
)

func ExampleConvert() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	report, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Bits: 4, Block: 32})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Printf("%s %v %s: %d to %d bytes\n", t.Name, t.Shape, t.Format, t.Bytes, t.OutBytes)
	}
	// Output:
	// w0 [64 96] int4: 24576 to 3840 bytes
	// w1 [96 64] int4: 24576 to 3840 bytes
	// w2 [64 16] int4: 4096 to 640 bytes
}

func ExampleModel_Plan() {
	in, _, remove := modeltest.Example("embedding")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	plan, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range plan.Tensors {
		fmt.Println(t.Name, t.Decision, t.Reason)
	}
	// Output:
	// table keep operator not selected: Gather
	// head quantize
}
