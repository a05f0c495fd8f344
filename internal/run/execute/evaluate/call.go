package evaluate

import (
	"errors"
	"fmt"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// operator implements an ONNX operator.
type operator struct {
	inputs     int      // number of required inputs
	attributes []string // attributes that run handles or may ignore
	run        func(*call) ([]*execute.Tensor, error)
}

// call is a node with the values of its inputs.
type call struct {
	*evaluator
	scope *scope
	node  *onnxpb.NodeProto
	in    []*execute.Tensor // nil for absent ones
}

// unsupported returns an error that wraps execute.ErrUnsupported.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{execute.ErrUnsupported}, args...)...)
}

// input returns an optional input, or nil.
func (c *call) input(i int) *execute.Tensor {
	if i < len(c.in) {
		return c.in[i]
	}
	return nil
}

func (c *call) attribute(name string) *onnxpb.AttributeProto {
	for _, a := range c.node.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

func (c *call) int(name string, unset int64) int64 {
	if a := c.attribute(name); a != nil {
		return a.GetI()
	}
	return unset
}

func (c *call) float(name string, unset float32) float32 {
	if a := c.attribute(name); a != nil {
		return a.GetF()
	}
	return unset
}

func (c *call) text(name, unset string) string {
	if a := c.attribute(name); a != nil {
		return string(a.GetS())
	}
	return unset
}

func (c *call) ints(name string, unset []int64) []int64 {
	if a := c.attribute(name); a != nil {
		return a.GetInts()
	}
	return unset
}

// list returns a list of integers, or nil. It is an input in newer opsets and an attribute in older
// ones.
func (c *call) list(input int, name string) []int64 {
	if t := c.input(input); t != nil {
		return t.Int64s()
	}
	return c.ints(name, nil)
}

// axis checks an axis of a tensor of the given rank. A negative one counts from the last.
func axis(a int64, rank int) (int, error) {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d of a tensor with %d dimensions", a, rank)
	}
	return int(a), nil
}

// axes marks the listed axes of a tensor of the given rank.
func axes(list []int64, rank int) ([]bool, error) {
	marks := make([]bool, rank)
	for _, a := range list {
		i, err := axis(a, rank)
		if err != nil {
			return nil, err
		}
		marks[i] = true
	}
	return marks, nil
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// oneOutput is the result of an operator with one output.
func oneOutput(t *execute.Tensor, err error) ([]*execute.Tensor, error) {
	return []*execute.Tensor{t}, err
}

// reshaped returns t with new dims. It shares the elements.
func reshaped(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if product(dims) != int64(t.Len()) {
		return nil, fmt.Errorf("%d elements do not fit dims %v", t.Len(), dims)
	}
	return &execute.Tensor{DType: t.DType, Dims: dims, Data: t.Data}, nil
}

var (
	errTypes        = errors.New("its inputs have different types")
	errMissingInput = errors.New("a required input is missing")
)
