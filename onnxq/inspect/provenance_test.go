package inspect_test

import (
	"context"
	"fmt"
	"log"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/inspect"
	"onnxquant/spec"
)

// A program records itself in what it converts. Inspect reads it.
func Example_provenance() {
	in, out, remove := modeltest.Example("mlp")
	defer remove()

	step := spec.Step{Tool: "example", Version: "1.0", Command: "convert", Options: "4 bits"}
	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32, Provenance: &step}); err != nil {
		log.Fatal(err)
	}
	m, err := onnxq.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for _, s := range inspect.Model(m, onnxq.Options{}).Provenance {
		fmt.Println(s.Tool, s.Version, s.Command, s.Options, s.Input.Bytes, len(s.Input.SHA256))
	}
	// Output: example 1.0 convert 4 bits 54362 64
}
