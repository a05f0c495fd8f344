// Command evaluate runs a model in pure Go and prints its outputs as JSON, for the
// comparison with ONNX Runtime.
//
//	evaluate MODEL [INPUT…]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"onnxquant/internal/execute"
	"onnxquant/internal/execute/evaluate"
	"onnxquant/internal/modelfile"
)

type output struct {
	Type int     `json:"type"` // a TensorProto.DataType
	Dims []int64 `json:"dims"`
	Data []byte  `json:"data"`
}

func run(path string, files []string) error {
	m, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	inputs, err := execute.Inputs(m, execute.InputOptions{Files: files, Seed: 1})
	if err != nil {
		return err
	}
	results, err := evaluate.Runner{}.Run(context.Background(), path, inputs)
	if err != nil {
		return err
	}
	list := []output{}
	for _, t := range results {
		list = append(list, output{int(t.DType), t.Dims, t.Data})
	}
	return json.NewEncoder(os.Stdout).Encode(list)
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
