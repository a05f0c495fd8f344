package onnxq

import (
	"fmt"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/onnxq/recognize"
)

// Model is an opened ONNX model: its structure in memory, the contents of its
// tensors on disk. It is not changed by planning or converting.
type Model struct {
	file  *modelfile.Model
	index *graph.Graph
}

// Open reads the structure of the model at path and checks it. External data
// must lie below the model's folder. The model must be closed after use.
func Open(path string) (*Model, error) {
	file, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	m, err := newModel(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func newModel(file *modelfile.Model) (*Model, error) {
	index, err := graph.New(file)
	return &Model{file, index}, err
}

// Close releases the model's files.
func (m *Model) Close() error { return m.file.Close() }

// Size returns the bytes of the model file and of the external data it uses.
func (m *Model) Size() int64 { return m.file.Size() }

// QuantizedWeights lists the quantized weights of the main graph and of its
// subgraphs, in the order of the nodes that decode them, and then those of functions.
func (m *Model) QuantizedWeights() []*recognize.Weight { return recognize.Weights(m.index) }
