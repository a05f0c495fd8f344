package analyze_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/spec"
)

func ExampleModel() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	candidates := []spec.Candidate{{Format: spec.Int4, Block: 32}, {Format: spec.Int8, Block: 32}}
	analysis, err := analyze.Model(context.Background(), m, analyze.Options{Candidates: candidates, MaxError: 0.06})
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range analysis.Weights {
		fmt.Println(w.Name, w.Recommended)
	}
	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Precision: analysis.Precision}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// w0 int4:32
	// w1 int8:32
	// w2 int8:32
}
