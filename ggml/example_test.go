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

// An encoding of one's own: blocks of eight signs and no scale.
func ExampleRegister() {
	signs := &ggml.Encoding{
		Name: "SIGNS", Type: 1000, Elements: 8, Bytes: 1,
		Encode: func(dst []byte, row, _ []float32) {
			clear(dst)
			for i, v := range row {
				if v < 0 {
					dst[i/8] |= 1 << (i % 8)
				}
			}
		},
		Decode: func(row []float32, src []byte) {
			for i := range row {
				row[i] = 1 - 2*float32(src[i/8]>>(i%8)&1)
			}
		},
	}
	if err := ggml.Register(signs); err != nil {
		log.Fatal(err)
	}
	e, _ := ggml.Lookup("signs")
	w := []float32{3, -1, 4, -1, 5, -9, 2, -6}
	packed := make([]byte, 1)
	if err := e.Quantize(packed, w, 8, nil, 1); err != nil {
		log.Fatal(err)
	}
	if err := e.Dequantize(w, packed, 8, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(packed, w)
	// Output: [170] [1 -1 1 -1 1 -1 1 -1]
}
