//go:build !nogorgonia

package evaluate

import (
	"fmt"

	"github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/x/gorgonnx"
	"gorgonia.org/tensor"

	"onnxquant/formats/dtype"
	"onnxquant/internal/execute"
)

// compute applies one operator of gorgonnx to operands of the same floating-point type.
// dims has the shapes of the operands; those of the tensors are not used.
//
// gorgonnx guesses how to broadcast operands and ignores unknown attributes. So it gets
// one operation at a time, with shapes and attributes that leave nothing to guess.
func compute(op string, attributes map[string]any, dims [][]int64, operands ...*execute.Tensor) (result *execute.Tensor, err error) {
	defer func() {
		if p := recover(); p != nil {
			result, err = nil, fmt.Errorf("%w: gorgonnx panics: %v", execute.ErrUnsupported, p)
		}
	}()
	g := gorgonnx.NewGraph()
	out := g.NewNode()
	g.AddNode(out)
	for i, operand := range operands {
		in := g.NewNode().(*gorgonnx.Node)
		g.AddNode(in)
		shape := make([]int, len(dims[i]))
		for k, d := range dims[i] {
			shape[k] = int(d)
		}
		if err := in.SetTensor(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(numbers(operand)))); err != nil {
			return nil, err
		}
		g.SetWeightedEdge(g.NewWeightedEdge(out, in, float64(i)))
	}
	if err := g.ApplyOperation(onnx.Operation{Name: op, Attributes: attributes}, out); err != nil {
		return nil, err
	}
	if err := g.Run(); err != nil {
		return nil, fmt.Errorf("%w: gorgonnx: %w", execute.ErrUnsupported, err)
	}
	t, ok := out.(*gorgonnx.Node).GetTensor().(*tensor.Dense)
	if !ok || t.RequiresIterator() || t.DataOrder().IsColMajor() {
		return nil, fmt.Errorf("%w: gorgonnx returns a view", execute.ErrUnsupported)
	}
	shape := make([]int64, t.Dims())
	for i, d := range t.Shape() {
		shape[i] = int64(d)
	}
	typ := operands[0].DType
	switch x := t.Data().(type) {
	case []float32:
		return execute.FromFloat32s(typ, shape, x)
	case []float64:
		return execute.FromFloat64s(typ, shape, x)
	case float32:
		return execute.FromFloat32s(typ, shape, []float32{x})
	case float64:
		return execute.FromFloat64s(typ, shape, []float64{x})
	}
	return nil, fmt.Errorf("%w: gorgonnx returns elements of type %v", execute.ErrUnsupported, t.Dtype())
}

// numbers returns the elements as []float64 for float64, else as []float32.
func numbers(t *execute.Tensor) any {
	if t.DType == dtype.Float64 {
		return t.Float64s()
	}
	return t.Float32s()
}
