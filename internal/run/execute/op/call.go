// Package op is what the operators of the pure Go engine share: how a node reaches its operator, and the
// shapes, moves and conversions of tensors that many operators need.
//
// Each package below has a family of operators as a [Table]. An operator gets a [Call] and returns its
// outputs. It does not change its inputs, with which outputs may share memory. It asks for room before it
// makes a tensor whose size the model chooses. An error that wraps execute.ErrUnsupported says that it
// does not know a case.
package op

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// Operator implements an ONNX operator.
type Operator struct {
	Inputs     int    // number of required inputs
	Attributes string // attributes that Run handles or may ignore
	Run        func(*Call) ([]*execute.Tensor, error)
}

// Table has operators by name, those of other domains by domain:name.
type Table map[string]Operator

// Takes reports whether the operator knows an attribute.
func (o Operator) Takes(attribute string) bool {
	return slices.Contains(strings.Fields(o.Attributes), attribute)
}

// Host is what runs an operator.
type Host interface {
	// Spend takes work, about in multiply-adds, from the budget of the run.
	Spend(work float64) error

	// Room checks that there is room for a tensor.
	Room(typ dtype.DType, dims []int64) error

	// Memory returns n bytes whose content is undefined.
	Memory(n int) []byte

	// Load reads a tensor of an attribute.
	Load(t *onnxpb.TensorProto) (*execute.Tensor, error)

	// Body runs a graph of an attribute. Its inputs may be nil.
	Body(g *onnxpb.GraphProto, inputs []*execute.Tensor) ([]*execute.Tensor, error)

	// Arithmetic is that of another engine, or nil.
	Arithmetic() Arithmetic

	// Context ends the run.
	Context() context.Context
}

// Arithmetic computes with tensors of one floating-point type, whose shapes fit.
type Arithmetic interface {
	// Elementwise applies an operator to one tensor, or to two of the same shape.
	Elementwise(op string, in ...*execute.Tensor) (*execute.Tensor, error)

	// MatMul multiplies matrices [m, k] and [k, n], whatever the dims of the tensors are.
	MatMul(a, b *execute.Tensor, m, k, n int64) (*execute.Tensor, error)

	// Correlate slides kernels [m, c, h, w] over images [n, c, y, x] to an output with these
	// dims.
	Correlate(images, kernels *execute.Tensor, steps, dims []int64) (*execute.Tensor, error)

	// MaxPool finds the largest element of each window of an image, for an output with these
	// dims.
	MaxPool(images *execute.Tensor, kernel, steps, dims []int64) (*execute.Tensor, error)
}

// Call is a node with the values of its inputs.
type Call struct {
	Host
	Node  *onnxpb.NodeProto
	In    []*execute.Tensor // nil for absent ones
	Opset int64             // of ONNX

	// Last is what MatMul adds to each row of its result, of float32, or nil.
	Last *execute.Tensor
}

// Unsupported returns an error that wraps execute.ErrUnsupported.
func Unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{execute.ErrUnsupported}, args...)...)
}

// BadType says that an operator does not take elements of the type of t.
func BadType(t *execute.Tensor) error { return Unsupported("elements of type %v", t.DType) }

var (
	ErrTypes        = errors.New("its inputs have different types")
	ErrMissingInput = errors.New("a required input is missing")
)

// One is the result of an operator with one output.
func One(t *execute.Tensor, err error) ([]*execute.Tensor, error) {
	if err != nil {
		return nil, err
	}
	return []*execute.Tensor{t}, nil
}

// Workers is the number of workers for loops that are worth it.
func Workers() int { return runtime.GOMAXPROCS(0) }

// Input returns an optional input, or nil.
func (c *Call) Input(i int) *execute.Tensor {
	if i < len(c.In) {
		return c.In[i]
	}
	return nil
}

// Wants reports whether the node has an output i.
func (c *Call) Wants(i int) bool { return i < len(c.Node.Output) && c.Node.Output[i] != "" }

// Attribute returns an attribute, or nil.
func (c *Call) Attribute(name string) *onnxpb.AttributeProto {
	for _, a := range c.Node.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// Int returns an attribute, or what it is unset.
func (c *Call) Int(name string, unset int64) int64 {
	if a := c.Attribute(name); a != nil {
		return a.GetI()
	}
	return unset
}

// Is reports whether an attribute is set and not 0.
func (c *Call) Is(name string) bool { return c.Int(name, 0) != 0 }

// Float returns an attribute, or what it is unset.
func (c *Call) Float(name string, unset float32) float32 {
	if a := c.Attribute(name); a != nil {
		return a.GetF()
	}
	return unset
}

// Text returns an attribute, or what it is unset.
func (c *Call) Text(name, unset string) string {
	if a := c.Attribute(name); a != nil {
		return string(a.GetS())
	}
	return unset
}

// Ints returns an attribute, or what it is unset.
func (c *Call) Ints(name string, unset []int64) []int64 {
	if a := c.Attribute(name); a != nil {
		return a.GetInts()
	}
	return unset
}

// List returns a list of integers, or nil. It is an input in newer opsets and an attribute in older
// ones.
func (c *Call) List(input int, name string) []int64 {
	if t := c.Input(input); t != nil {
		return t.Int64s()
	}
	return c.Ints(name, nil)
}

// Scalar returns the number of an optional input, which has one element.
func (c *Call) Scalar(input int, unset float64) (float64, error) {
	t := c.Input(input)
	switch {
	case t == nil:
		return unset, nil
	case t.Len() != 1:
		return 0, fmt.Errorf("input %d has dims %v, want one element", input, t.Dims)
	}
	return t.Float64s()[0], nil
}

// Whole is Scalar for integers.
func (c *Call) Whole(input int, unset int64) (int64, error) {
	v, err := c.Scalar(input, float64(unset))
	if v != v || v < -1<<62 || v > 1<<62 {
		return 0, fmt.Errorf("input %d is %v, which is no integer that fits", input, v)
	}
	if t := c.Input(input); err == nil && t != nil && !t.IsFloat() {
		return t.Int64s()[0], nil
	}
	return int64(v), err
}
