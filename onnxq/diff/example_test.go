package diff_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/diff"
)

func ExampleModels() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Include: []string{"w0"}}); err != nil {
		log.Fatal(err)
	}
	a, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := onnxq.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	d, err := diff.Models(ctx, a, b, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range d.Changes {
		fmt.Println(c.Kind, c.Where)
	}
	// Output:
	// added node "w0" (DequantizeLinear)
	// removed initializer "w0"
	// added initializer "w0_i4"
	// added initializer "w0_scale"
}
