package qlora_test

import (
	"fmt"
	"log"

	"onnxquant/formats/qlora"
)

func ExampleQuantize() {
	q, err := qlora.Quantize(qlora.KindLinear, []float32{3.5, -7, 1, 0})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("% x %v\n", q.Codes, q.Decode())
	// Output: 49 10 [4 -7 1 0]
}

func ExampleDoubleDynamic() {
	x := make([]float32, 64*256)
	for i := range x {
		x[i] = float32(i%97) - 48
	}
	q, err := qlora.Quantize(qlora.KindNF4, x)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes, %.2f times smaller\n", q.Bytes(), q.Compression())
	q.Scales = qlora.DoubleDynamic(q.Scales.Decode())
	fmt.Printf("%d bytes, %.2f times smaller\n", q.Bytes(), q.Compression())
	// Output:
	// 9216 bytes, 7.11 times smaller
	// 8456 bytes, 7.75 times smaller
}

func ExampleDoubleLinear() {
	d := qlora.DoubleLinear([]float32{1, 0.5, 0.1})
	fmt.Println(d.Codes, d.Supers)
	// Output: [255 128 26] [1]
}
