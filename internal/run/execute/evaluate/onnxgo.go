//go:build onnxgo

package evaluate

import (
	"fmt"
	"math"

	"github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/x/gorgonnx"
	"gorgonia.org/tensor"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// OnnxGo is an engine that computes with gorgonnx, the backend of onnx-go 0.5.0.
func OnnxGo() (execute.Runner, error) {
	return runner{arithmetic: onnxGo{}, name: "onnx-go 0.5.0 (gorgonnx)"}, nil
}

// onnxGo runs one operation at a time in gorgonnx, with unambiguous shapes and attributes: gorgonnx
// guesses how to broadcast operands and ignores unknown attributes.
type onnxGo struct{}

// errZeros is about gorgonnx's products, in which a zero times NaN or infinity is zero.
var errZeros = op.Unsupported("gorgonnx does not multiply zeros by NaN or infinity")

func (onnxGo) Elementwise(op string, in ...*execute.Tensor) (*execute.Tensor, error) {
	var dims [][]int64
	for _, t := range in {
		dims = append(dims, []int64{int64(t.Len())})
	}
	t, err := compute(op, nil, dims, in...)
	if err != nil {
		return nil, err
	}
	return returned(t, in[0].Dims)
}

func (onnxGo) MatMul(a, b *execute.Tensor, m, k, n int64) (*execute.Tensor, error) {
	if !finite(b.Float64s()) {
		return nil, errZeros
	}
	t, err := compute("MatMul", nil, [][]int64{{m, k}, {k, n}}, a, b)
	if err != nil {
		return nil, err
	}
	return returned(t, []int64{m, n})
}

func (o onnxGo) Correlate(images, kernels *execute.Tensor, steps, dims []int64) (*execute.Tensor, error) {
	if err := patches(images, kernels, dims); err != nil {
		if dims[0] == 1 {
			return nil, err
		}
		return o.eachImage(images, kernels, steps, dims)
	}
	if !finite(images.Float64s()) || !finite(kernels.Float64s()) {
		return nil, errZeros
	}
	attributes := map[string]any{"kernel_shape": kernels.Dims[2:], "pads": []int64{0, 0, 0, 0}, "strides": steps}
	t, err := compute("Conv", attributes, [][]int64{images.Dims, kernels.Dims}, images, kernels)
	if err != nil {
		return nil, err
	}
	return returned(t, dims)
}

// patches limits the copies of the image that gorgonnx makes: for each element of an output channel,
// the elements that the kernel covers.
func patches(x, k *execute.Tensor, out []int64) error {
	size := 4.0
	if x.DType == dtype.Float64 {
		size = 8
	}
	for _, n := range []int64{out[0], out[2], out[3], k.Dims[1], k.Dims[2], k.Dims[3]} {
		size *= float64(n)
	}
	if size > execute.MaxBytes {
		return op.Unsupported("a convolution for which gorgonnx takes %.0f MiB", size/(1<<20))
	}
	return nil
}

// eachImage correlates one image of a batch after another, where all at once take too much
// memory.
func (o onnxGo) eachImage(images, kernels *execute.Tensor, steps, dims []int64) (*execute.Tensor, error) {
	var parts []*execute.Tensor
	for i := range dims[0] {
		image, err := (*op.Call)(nil).Slice(images, 0, i, 1)
		if err != nil {
			return nil, err
		}
		y, err := o.Correlate(image, kernels, steps, append([]int64{1}, dims[1:]...))
		if err != nil {
			return nil, err
		}
		parts = append(parts, y)
	}
	return (*op.Call)(nil).Concat(parts, 0)
}

// maxPool pads the image by one more row and column, and slices off the extra outputs: gorgonnx
// refuses a kernel as large as the image.
func (onnxGo) MaxPool(images *execute.Tensor, kernel, steps, dims []int64) (*execute.Tensor, error) {
	lowest, err := execute.FromFloat64s(images.DType, nil, []float64{math.Inf(-1)})
	if err != nil {
		return nil, err
	}
	t, err := (*op.Call)(nil).Pad(images, []int64{0, 0, 0, 0}, []int64{0, 0, 1, 1}, lowest.Data)
	if err != nil {
		return nil, err
	}
	attributes := map[string]any{"kernel_shape": kernel, "pads": []int64{0, 0, 0, 0}, "strides": steps}
	y, err := compute("MaxPool", attributes, [][]int64{t.Dims}, t)
	if err != nil {
		return nil, err
	}
	all := []int64{dims[0], dims[1], (t.Dims[2]-kernel[0])/steps[0] + 1, (t.Dims[3]-kernel[1])/steps[1] + 1}
	if y, err = returned(y, all); err != nil {
		return nil, err
	}
	if y, err = (*op.Call)(nil).Slice(y, 2, 0, dims[2]); err != nil {
		return nil, err
	}
	return (*op.Call)(nil).Slice(y, 3, 0, dims[3])
}

// returned gives a result of gorgonnx the dims that it should have.
func returned(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if t.Len() != int(op.Product(dims)) {
		return nil, op.Unsupported("gorgonnx returns dims %v, not %v", t.Dims, dims)
	}
	return op.Reshaped(t, dims)
}

// compute applies one operator of gorgonnx to operands of the same floating-point type. dims has the
// shapes of the operands; the shapes in the tensors are ignored.
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

// finite reports whether no element is NaN or infinite.
func finite(x []float64) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}
