package moves

import (
	"errors"
	"math"

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

// runRange counts from the first input up to the second, by the third.
func runRange(c *op.Call) ([]*execute.Tensor, error) {
	for _, t := range c.In[:3] {
		if t.Len() != 1 || t.DType != c.In[0].DType {
			return nil, errors.New("its inputs are not scalars of one type")
		}
	}
	typ := c.In[0].DType
	from, to, by := c.In[0].Float64s()[0], c.In[1].Float64s()[0], c.In[2].Float64s()[0]
	if by == 0 || by != by {
		return nil, errors.New("delta is 0")
	}
	n := max(math.Ceil((to-from)/by), 0)
	if n != n || n > execute.MaxBytes {
		return nil, op.Unsupported("a range of %v elements", n)
	}
	dims := []int64{int64(n)}
	if err := c.Room(dtype.Int64, dims); err != nil {
		return nil, err
	}
	if !typ.Float() {
		list, first, step := make([]int64, int(n)), c.In[0].Int64s()[0], c.In[2].Int64s()[0]
		for i := range list {
			list[i] = first + int64(i)*step
		}
		return op.One(execute.FromInt64s(typ, dims, list))
	}
	list := make([]float64, int(n))
	for i := range list {
		list[i] = from + float64(i)*by
	}
	return op.One(execute.FromFloat64s(typ, dims, list))
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
	case "value_string":
		return op.One(&execute.Tensor{DType: dtype.String, Text: []string{string(a.GetS())}}, nil)
	case "value_strings":
		text := make([]string, len(a.GetStrings()))
		for i, v := range a.GetStrings() {
			text[i] = string(v)
		}
		return op.One(&execute.Tensor{DType: dtype.String, Dims: []int64{int64(len(text))}, Text: text}, nil)
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
