package main

import (
	"log"

	"onnxquant/internal/modeltest"
)

func Example() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	if err := convert(in, out, 0.08); err != nil {
		log.Fatal(err)
	}
	// Output:
	// w0 q4_0
	// w1 q4_0
	// w2 int4:32:zp
	// 54362 to 9222 bytes
}
