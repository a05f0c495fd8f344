package onnxq

import (
	"fmt"

	"onnxquant/internal/fixdim"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/simplify"
)

// Model is an opened ONNX model. Its structure is in memory, the contents of its tensors are on
// disk. Planning and converting do not change a Model. Only checkpoint.Read does: it replaces
// contents, and may put a Gather before products.
type Model struct {
	graph  *graph.Graph
	folded *simplify.Model // nil if the graph is as the file has it

	balance map[string][]int8 // exponents of factors that the graph has, or nil
}

// Open reads and checks the structure of the model at path. External data must be in the
// model's folder or below. The caller closes the model.
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
	x.ShareNames()
	return &Model{graph: x}, nil
}

// CheckDims refuses sizes of Options.FixDims that the model at path does not take.
func CheckDims(path string, sizes map[string]int64) error {
	if len(sizes) == 0 {
		return nil
	}
	file, err := modelfile.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return fixdim.Check(file.Proto, sizes)
}

// Close releases the model's files.
func (m *Model) Close() error {
	if err := m.Opened(); err != nil {
		return err
	}
	return m.graph.File.Close()
}

// Size returns the size of the model file and its external data.
func (m *Model) Size() int64 { return m.graph.File.Size() }
