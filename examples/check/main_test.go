package main

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
)

func Example() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	for _, bits := range []int{8, 2} {
		if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Bits: bits, Block: 32}); err != nil {
			log.Fatal(err)
		}
		passed, err := check(in, out)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("passed:", passed)
	}
	// Output:
	// output y: SQNR 41 dB, cosine 1.000
	// passed: true
	// failed: weight "w0": SQNR 9.8 dB is below 15 dB
	// failed: weight "w1": SQNR 9.7 dB is below 15 dB
	// failed: weight "w2": SQNR 10.0 dB is below 15 dB
	// failed: output "y": SQNR 4.4 dB is below 15 dB
	// output y: SQNR 4 dB, cosine 0.818
	// passed: false
}
