package onnxq

import (
	"fmt"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/nearest"
	"onnxquant/internal/recognize"
)

// Tensor is a float tensor of a model. Its elements are on disk: the model must be open to read
// them.
type Tensor struct {
	Name  string // as in TensorPlan
	DType dtype.DType
	Shape []int64

	source io.ReaderAt
	len    int64
}

// Tensors lists the float tensors of the model: initializers and Constant nodes.
func (m *Model) Tensors() ([]*Tensor, error) {
	if err := m.Opened(); err != nil {
		return nil, err
	}
	var list []*Tensor
	for _, v := range m.graph.Values {
		if !dtype.DType(v.Tensor.GetDataType()).Float() {
			continue
		}
		t, err := m.tensor(v)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// Tensor finds a float tensor by its name.
func (m *Model) Tensor(name string) (*Tensor, error) {
	if err := m.Opened(); err != nil {
		return nil, err
	}
	var names []string
	for _, v := range m.graph.Values {
		switch {
		case !dtype.DType(v.Tensor.GetDataType()).Float():
		case v.Path == name:
			return m.tensor(v)
		default:
			names = append(names, v.Path)
		}
	}
	message := "the model has no float tensor " + msg.Quote(name)
	if near, ok := nearest.Name(name, names); ok {
		message += "; did you mean " + msg.Quote(near) + "?"
	}
	return nil, fmt.Errorf("%s", message)
}

func (m *Model) tensor(v *graph.Value) (*Tensor, error) {
	p, err := m.graph.File.Payload(v.Tensor)
	if err != nil {
		return nil, err
	}
	t := &Tensor{Name: v.Path, DType: dtype.DType(v.Tensor.GetDataType()), Shape: append([]int64{}, v.Tensor.Dims...), source: p}
	t.len, err = dtype.Elements(t.Shape)
	return t, err
}

// Quantized lists the quantized weights of the model, from any tool. Their values can be read.
func (m *Model) Quantized() []*recognize.Weight { return recognize.Weights(m.graph) }

// Len is the number of elements.
func (t *Tensor) Len() int64 { return t.len }

// Read sets x to len(x) elements, starting with element first, as float32.
func (t *Tensor) Read(x []float32, first int64) error {
	if first < 0 || first > t.len || int64(len(x)) > t.len-first {
		return fmt.Errorf("tensor %s: elements %d to %d, but it has %d", msg.Quote(t.Name), first, first+int64(len(x)), t.len)
	}
	if len(x) == 0 {
		return nil
	}
	if err := lazy.ReadNumbers(new(lazy.Arena), x, t.source, t.DType, first); err != nil {
		return fmt.Errorf("tensor %s: %w", msg.Quote(t.Name), err)
	}
	return nil
}

// Floats returns all elements as float32. Read is for tensors larger than memory.
func (t *Tensor) Floats() ([]float32, error) {
	x := make([]float32, t.len)
	return x, t.Read(x, 0)
}
