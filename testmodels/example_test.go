package testmodels_test

import (
	"fmt"
	"log"

	"onnxquant/testmodels"
)

func ExampleBuild() {
	m, err := testmodels.Build("mlp", 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range m.Proto.Graph.Initializer {
		fmt.Println(w.GetName(), w.Dims)
	}
	// Output:
	// w0 [64 96]
	// b0 [96]
	// w1 [96 64]
	// b1 [64]
	// w2 [64 16]
	// b2 [16]
}
