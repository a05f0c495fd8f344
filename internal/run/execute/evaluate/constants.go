package evaluate

import (
	"errors"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

func runShape(c *call) ([]*execute.Tensor, error) {
	dims := c.in[0].Dims
	rank := int64(len(dims))
	bound := func(i int64) int64 {
		if i < 0 {
			i += rank
		}
		return min(max(i, 0), rank)
	}
	from, to := bound(c.int("start", 0)), bound(c.int("end", rank))
	dims = dims[from:max(from, to)]
	return oneOutput(execute.FromInt64s(dtype.Int64, []int64{int64(len(dims))}, dims))
}

func runRange(c *call) ([]*execute.Tensor, error) {
	if c.in[0].IsFloat() {
		return nil, unsupported("elements of type %v", c.in[0].DType)
	}
	for _, t := range c.in[:3] {
		if t.Len() != 1 {
			return nil, errors.New("its inputs are not scalars")
		}
	}
	from, to, by := c.in[0].Int64s()[0], c.in[1].Int64s()[0], c.in[2].Int64s()[0]
	if by == 0 {
		return nil, errors.New("delta is 0")
	}
	n := max((to-from)/by, 0)
	if n > 0 && (to-from)%by != 0 || n == 0 && (to-from)*by > 0 {
		n++
	}
	if err := c.checkRoom(dtype.Int64, []int64{n}); err != nil {
		return nil, err
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = from + int64(i)*by
	}
	return oneOutput(execute.FromInt64s(c.in[0].DType, []int64{n}, list))
}

func runConstant(c *call) ([]*execute.Tensor, error) {
	a := c.node.Attribute[0]
	switch a.GetName() {
	case "value":
		return oneOutput(c.load(a.GetT()))
	case "value_int":
		return oneOutput(execute.FromInt64s(dtype.Int64, nil, []int64{a.GetI()}))
	case "value_ints":
		return oneOutput(execute.FromInt64s(dtype.Int64, []int64{int64(len(a.GetInts()))}, a.GetInts()))
	case "value_float":
		return oneOutput(execute.FromFloat32s(dtype.Float32, nil, []float32{a.GetF()}))
	}
	return oneOutput(execute.FromFloat32s(dtype.Float32, []int64{int64(len(a.GetFloats()))}, a.GetFloats()))
}

func runConstantOfShape(c *call) ([]*execute.Tensor, error) {
	element, dims := &execute.Tensor{DType: dtype.Float32, Data: make([]byte, 4)}, c.in[0].Int64s()
	if a := c.attribute("value"); a != nil {
		var err error
		if element, err = c.load(a.GetT()); err != nil {
			return nil, err
		}
	}
	if err := c.checkRoom(element.DType, dims); err != nil {
		return nil, err
	}
	return oneOutput(filled(element.DType, dims, element.Data))
}
