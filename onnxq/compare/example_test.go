package compare_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/restyle"
)

func ExampleMatchWeights() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	ctx := context.Background()
	if _, err := onnxq.Convert(ctx, in, out, onnxq.Options{Block: 32}); err != nil {
		log.Fatal(err)
	}
	folded, err := restyle.Dequantize(ctx, out, out+".float", restyle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	a, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b, err := onnxq.Open(folded.Output)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	m, err := compare.MatchWeights(ctx, a, b, folded, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(m.Problems), "problems")
	for _, w := range m.Weights {
		fmt.Printf("%s as %s: SQNR %.1f dB\n", w.Name, w.CodeType, w.SQNR)
	}
	// Output:
	// 0 problems
	// w0 as INT4: SQNR 20.6 dB
	// w1 as INT4: SQNR 20.6 dB
	// w2 as INT4: SQNR 21.1 dB
}
