package ggml_test

import (
	"fmt"
	"log"

	"onnxquant/ggml"
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
