package onnxq

import (
	"fmt"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
)

// Model is an opened ONNX model: its structure in memory, the contents of its
// tensors on disk. It is not changed by planning or converting.
type Model struct{ graph *graph.Graph }

// Open reads the structure of the model at path and checks it. External data
// must lie below the model's folder. The model must be closed after use.
func Open(path string) (*Model, error) {
	file, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	x, err := graph.New(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Model{x}, nil
}

// Close releases the model's files.
func (m *Model) Close() error { return m.graph.File.Close() }

// Size returns the bytes of the model file and of the external data it uses.
func (m *Model) Size() int64 { return m.graph.File.Size() }

// Graph is what the model's values are made of and read by. The packages below onnxq
// work on it.
func (m *Model) Graph() *graph.Graph { return m.graph }
