package ggml_test

import (
	"fmt"
	"log"

	"onnxquant/formats/ggml"
)

func ExampleEncoding() {
	w := make([]float32, 2*256) // two rows
	for i := range w {
		w[i] = float32(i%256-128) / 128
	}
	e, _ := ggml.Lookup("q4_k")
	shape, err := e.PackedShape([]int{2, 256})
	if err != nil {
		log.Fatal(err)
	}
	packed := make([]byte, shape[0]*shape[1])
	if err := e.Quantize(packed, w, 256, nil, 2); err != nil {
		log.Fatal(err)
	}
	if err := e.Dequantize(w, packed, 256, 2); err != nil {
		log.Fatal(err)
	}
	fmt.Println(e, shape, e.BitsPerWeight(), "bits")
	fmt.Printf("%.3f %.3f %.3f\n", w[0], w[64], w[255])
	_, err = e.PackedShape([]int{256, 100})
	fmt.Println(err)
	// Output:
	// Q4_K [2 144] 4.5 bits
	// -0.996 -0.490 0.968
	// shape [256 100]: Q4_K: a row of 100 elements is not cut into whole blocks of 256
}

// The types of a GGUF file have numbers.
func ExampleLookupType() {
	e, ok := ggml.LookupType(14)
	fmt.Println(e, e.Elements, e.Bytes, ok)
	// Output: Q6_K 256 210 true
}

func ExampleAll() {
	for _, e := range ggml.All()[:5] {
		fmt.Println(e, e.BitsPerWeight())
	}
	// Output:
	// F32 32
	// F16 16
	// Q4_0 4.5
	// Q4_1 5
	// Q5_0 5.5
}

// Blocks of a form are codes and scales: here -8 … 7, as ONNX's INT4 has them.
func ExampleForm() {
	w := make([]float32, 32)
	for i := range w {
		w[i] = float32(i-16) / 2
	}
	packed := make([]byte, ggml.Q4_0.Bytes)
	if err := ggml.Q4_0.Quantize(packed, w, 32, nil, 1); err != nil {
		log.Fatal(err)
	}
	p := ggml.Parts{Codes: make([]byte, 32), Scales: make([]float32, 1)}
	ggml.Q4_0.Form.Split(p, packed)
	fmt.Println(p.Scales[0], int8(p.Codes[0]), int8(p.Codes[31]))
	// Output: 1 -8 7
}
