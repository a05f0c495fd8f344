package spec_test

import (
	"fmt"
	"log"

	"onnxquant/spec"
)

func ExampleParseCandidate() {
	c, err := spec.ParseCandidate("uint4:32:zp")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Format.Bits(), "bits, blocks of", c.Block)
	fmt.Println("zero points:", c.ZeroPoint)
	// Output:
	// 4 bits, blocks of 32
	// zero points: true
}

func ExampleFormats() {
	for _, f := range spec.Formats()[:5] {
		fmt.Println(f, f.Bits())
	}
	// Output:
	// float 0
	// int2 2
	// uint2 2
	// int4 4
	// uint4 4
}
