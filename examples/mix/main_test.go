package main

import (
	"log"

	"onnxquant/internal/testing/modeltest"
)

func Example() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()
	if err := convert(in, out, 0.08); err != nil {
		log.Fatal(err)
	}
	// Output:
	// w0 int4:64:zp:uint8scale
	// w1 int4:64:zp:uint8scale
	// w2 int4:16:zp
	// 54362 to 9166 bytes
}
