package ggufmodel_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
)

func Example() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	plan, err := ggufmodel.NewPlan(m, ggufmodel.Options{Mix: "Q8_0", TensorTypes: []ggufmodel.TypeRule{{Pattern: "w1", Type: "Q4_0"}}})
	if err != nil {
		log.Fatal(err)
	}
	report, err := plan.Write(context.Background(), out)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range report.Tensors {
		fmt.Println(t.Name, t.Shape, "as", t.Type, t.FileShape)
	}

	from, err := ggufmodel.ReadWeights(m, out, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(from.Tensors), "of", from.Of)
	// Output:
	// w0 [64 96] as Q8_0 [96 64]
	// b0 [96] as F32 [96]
	// w1 [96 64] as Q4_0 [64 96]
	// b1 [64] as F32 [64]
	// w2 [64 16] as Q8_0 [16 64]
	// b2 [16] as F32 [16]
	// 6 of 6
}
