package evaluate

import (
	"errors"
	"fmt"

	"onnxquant/internal/execute"
	"onnxquant/internal/onnxpb"
)

// operator is what the evaluator knows of an operator.
type operator struct {
	inputs     int      // that must be there
	attributes []string // that run minds, or that do not change what it does
	run        func(*call) ([]*execute.Tensor, error)
}

// call is a node with the values of its inputs.
type call struct {
	*evaluator
	scope *scope
	node  *onnxpb.NodeProto
	in    []*execute.Tensor // nil for those left out
}

func beyond(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{execute.ErrBeyond}, args...)...)
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

func (c *call) int(name string, otherwise int64) int64 {
	if a := c.attribute(name); a != nil {
		return a.GetI()
	}
	return otherwise
}

func (c *call) float(name string, otherwise float32) float32 {
	if a := c.attribute(name); a != nil {
		return a.GetF()
	}
	return otherwise
}

func (c *call) text(name, otherwise string) string {
	if a := c.attribute(name); a != nil {
		return string(a.GetS())
	}
	return otherwise
}

func (c *call) ints(name string, otherwise []int64) []int64 {
	if a := c.attribute(name); a != nil {
		return a.GetInts()
	}
	return otherwise
}

// list returns a list of integers that older opsets have as an attribute and newer
// ones as an input. It is nil if there is none.
func (c *call) list(input int, name string) []int64 {
	if t := c.input(input); t != nil {
		return t.Int64s()
	}
	return c.ints(name, nil)
}

// axis returns an axis from 0 on, of a tensor of the given rank.
func axis(a int64, rank int) (int, error) {
	if a < 0 {
		a += int64(rank)
	}
	if a < 0 || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d of %d dimensions", a, rank)
	}
	return int(a), nil
}

// axes marks axes of a tensor of the given rank.
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

func one(t *execute.Tensor, err error) ([]*execute.Tensor, error) {
	return []*execute.Tensor{t}, err
}

// reshaped gives the elements of t other dims, of the same product.
func reshaped(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if product(dims) != int64(t.Len()) {
		return nil, fmt.Errorf("dims %v for %d elements", dims, t.Len())
	}
	return &execute.Tensor{DType: t.DType, Dims: dims, Data: t.Data}, nil
}

var errTypes = errors.New("its inputs have different types")
