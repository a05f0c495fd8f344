// Command evaluate runs a model in pure Go and prints its outputs as JSON, by engine, for the
// comparison with ONNX Runtime. With the tag onnxgo, a second engine is onnx-go.
//
//	evaluate MODEL [INPUT…]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/run/synth"
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
	inputs, err := inputsOf(m, files)
	if err != nil {
		return err
	}
	engines := []execute.Runner{evaluate.Go}
	if second, err := evaluate.OnnxGo(); err == nil {
		engines = append(engines, second)
	}
	outputs := map[string][]output{}
	for i, engine := range engines {
		results, err := engine.Run(context.Background(), path, inputs)
		if i > 0 && errors.Is(err, execute.ErrUnsupported) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", engine.Name(), err)
		}
		outputs[engine.Name()] = []output{}
		for _, t := range results {
			outputs[engine.Name()] = append(outputs[engine.Name()], output{int(t.DType), t.Dims, t.Data})
		}
	}
	return json.NewEncoder(os.Stdout).Encode(outputs)
}

// inputsOf reads the inputs of a run; without files they are random.
func inputsOf(m *modelfile.Model, files []string) (inputs []*execute.Tensor, err error) {
	if len(files) == 0 {
		return synth.Inputs(m, synth.Options{Seed: 1})
	}
	data, err := samples.OpenWhole(m, files, 1)
	if err != nil {
		return nil, err
	}
	for inputs, err = range data.All() {
	}
	return inputs, err
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
