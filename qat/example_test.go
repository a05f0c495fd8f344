package qat_test

import (
	"fmt"
	"log"

	"onnxquant/qat"
)

func Example() {
	f := qat.FakeQuantizer{Bits: 4, Symmetric: true, Gradient: qat.Clamped}
	if err := f.Calibrate([]float32{-7, 7}); err != nil {
		log.Fatal(err)
	}
	x, dy := []float32{0.4, 2.6, 9}, []float32{1, 1, 1}
	y, dx := make([]float32, 3), make([]float32, 3)
	if err := f.Forward(y, x); err != nil {
		log.Fatal(err)
	}
	if err := f.Backward(dx, dy, x); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y, dx)
	// Output: [0 3 7] [1 1 0]
}
