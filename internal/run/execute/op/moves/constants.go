package moves

import (
	"errors"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

func runShape(c *op.Call) ([]*execute.Tensor, error) {
	dims := c.In[0].Dims
	rank := int64(len(dims))
	bound := func(i int64) int64 {
		if i < 0 {
			i += rank
		}
		return min(max(i, 0), rank)
	}
	from, to := bound(c.Int("start", 0)), bound(c.Int("end", rank))
	dims = dims[from:max(from, to)]
	return op.One(execute.FromInt64s(dtype.Int64, []int64{int64(len(dims))}, dims))
}

func runRange(c *op.Call) ([]*execute.Tensor, error) {
	if c.In[0].IsFloat() {
		return nil, op.Unsupported("elements of type %v", c.In[0].DType)
	}
	for _, t := range c.In[:3] {
		if t.Len() != 1 {
			return nil, errors.New("its inputs are not scalars")
		}
	}
	from, to, by := c.In[0].Int64s()[0], c.In[1].Int64s()[0], c.In[2].Int64s()[0]
	if by == 0 {
		return nil, errors.New("delta is 0")
	}
	n := max((to-from)/by, 0)
	if n > 0 && (to-from)%by != 0 || n == 0 && (to-from)*by > 0 {
		n++
	}
	if err := c.Room(dtype.Int64, []int64{n}); err != nil {
		return nil, err
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = from + int64(i)*by
	}
	return op.One(execute.FromInt64s(c.In[0].DType, []int64{n}, list))
}

func runConstant(c *op.Call) ([]*execute.Tensor, error) {
	a := c.Node.Attribute[0]
	switch a.GetName() {
	case "value":
		return op.One(c.Load(a.GetT()))
	case "value_int":
		return op.One(execute.FromInt64s(dtype.Int64, nil, []int64{a.GetI()}))
	case "value_ints":
		return op.One(execute.FromInt64s(dtype.Int64, []int64{int64(len(a.GetInts()))}, a.GetInts()))
	case "value_float":
		return op.One(execute.FromFloat32s(dtype.Float32, nil, []float32{a.GetF()}))
	}
	return op.One(execute.FromFloat32s(dtype.Float32, []int64{int64(len(a.GetFloats()))}, a.GetFloats()))
}

func runConstantOfShape(c *op.Call) ([]*execute.Tensor, error) {
	element, dims := &execute.Tensor{DType: dtype.Float32, Data: make([]byte, 4)}, c.In[0].Int64s()
	if a := c.Attribute("value"); a != nil {
		var err error
		if element, err = c.Load(a.GetT()); err != nil {
			return nil, err
		}
	}
	if err := c.Room(element.DType, dims); err != nil {
		return nil, err
	}
	return op.One(c.Filled(element.DType, dims, element.Data))
}
