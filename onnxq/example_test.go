package onnxq_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/int4"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
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

// A report prints itself.
func ExampleReport_String() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	report, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Bits: 4, Block: 32})
	if err != nil {
		log.Fatal(err)
	}
	report.Output = "out.onnx" // in this example it is in a temporary folder
	fmt.Print(report)
	// Output:
	// "out.onnx": 3 of 6 float tensors quantized, 98.7 % of their bytes: 3 int4
	// size: 53 KiB -> 9.6 KiB
	// "w1": SQNR 20.6 dB, largest error 0.0215
	// "w0": SQNR 20.6 dB, largest error 0.0258
	// "w2": SQNR 21.1 dB, largest error 0.0253
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
		fmt.Printf("%s: %s %s%s\n", t.Name, t.Decision, t.Format, t.Reason)
	}
	fmt.Print(plan)
	// Output:
	// table: keep operator not selected: Gather
	// head: quantize int4
	// 1 of 2 float tensors quantized, 50.0 % of their bytes: 1 int4
	// size: 25 KiB -> 15 KiB
}

// A plan can be edited before it is carried out.
func ExamplePlan_Convert() {
	in, out, remove := modeltest.Example("mlp")
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
	for i := range plan.Tensors {
		if t := &plan.Tensors[i]; t.Name == "w2" {
			t.Format = spec.Int8
		}
	}
	report, err := plan.Convert(context.Background(), out)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Worst(3) {
		fmt.Printf("%s: %s, %.0f dB\n", t.Name, t.Format, t.SQNR)
	}
	// Output:
	// w1: int4, 21 dB
	// w0: int4, 21 dB
	// w2: int8, 46 dB
}

// A codec quantizes the weight of a model.
func ExampleModel_Tensor() {
	in, _, remove := modeltest.Example("mlp")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	w, err := m.Tensor("w0")
	if err != nil {
		log.Fatal(err)
	}
	x, err := w.Floats()
	if err != nil {
		log.Fatal(err)
	}
	codes, err := int4.Encode(x, int(w.Shape[1]), 32, int4.Codec{Bits: 4, Signed: true, Type: w.DType})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(w.Name, w.Shape, w.DType, len(codes.Packed), "bytes of codes,", len(codes.Scales), "scales")
	// Output:
	// w0 [64 96] FLOAT 3072 bytes of codes, 192 scales
}
