package main

import (
	"log"

	"onnxquant/internal/testing/modeltest"
)

func Example() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	if err := convert(in, out, "w1"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// w0: 24576 to 3840 bytes, SQNR 21 dB
	// w2: 4096 to 640 bytes, SQNR 21 dB
}
