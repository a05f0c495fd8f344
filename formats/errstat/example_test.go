package errstat_test

import (
	"fmt"

	"onnxquant/formats/errstat"
)

func ExampleStats() {
	var all, part errstat.Stats
	all.Add([]float32{1, 2}, []float32{1.5, 2})
	part.Add([]float32{-4}, []float32{-4.25})
	all.Merge(part)
	fmt.Printf("largest error %g, MSE %.4f, SQNR %.1f dB\n", all.MaxAbs, all.MSE(), all.SQNR())
	// Output:
	// largest error 0.5, MSE 0.1042, SQNR 18.3 dB
}
