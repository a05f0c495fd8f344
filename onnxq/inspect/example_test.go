package inspect_test

import (
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/inspect"
	"onnxquant/spec"
)

func ExampleModel() {
	in, _, remove := modeltest.Example("tied")
	defer remove()

	m, err := onnxq.Open(in)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	found := inspect.Model(m, onnxq.Options{Target: spec.ORT, Block: 32, Ops: []string{"Gather", "Gemm"}})
	fmt.Println(found.Nodes, "nodes, opset", found.Opsets[0].Version)
	for _, t := range found.Types {
		fmt.Println(t.Tensors, t.DType, t.Bytes)
	}
	for _, t := range found.Plan.Tensors {
		fmt.Println(t.Name, t.Shape, t.Decision, t.Form)
		fmt.Println(t.Note)
	}
	// Output:
	// 3 nodes, opset 21
	// 1 FLOAT 12800
	// table [100 32] quantize Cast and Mul
	// ONNX Runtime decodes it once, when it loads the model
}
