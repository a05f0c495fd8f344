package recognize_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

func ExampleWeights() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32, Style: spec.NBits}); err != nil {
		log.Fatal(err)
	}
	m, err := onnxq.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for _, w := range m.Quantized() {
		row := make([]float32, w.Shape[1])
		if err := w.Read(row, 0); err != nil {
			log.Fatal(err)
		}
		fmt.Println(w, "for", w.Consumers)
	}
	// Output:
	// "w0_i4" [96 64] MatMulNBits, UINT4 in blocks of 32 along axis 1 for [com.microsoft.MatMulNBits:1]
	// "w1_i4" [64 96] MatMulNBits, UINT4 in blocks of 32 along axis 1 for [com.microsoft.MatMulNBits:1]
	// "w2_i4" [16 64] MatMulNBits, UINT4 in blocks of 32 along axis 1 for [com.microsoft.MatMulNBits:1]
}
