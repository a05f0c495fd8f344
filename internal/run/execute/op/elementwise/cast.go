package elementwise

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

func runCast(c *op.Call) ([]*execute.Tensor, error) {
	t, to := c.In[0], dtype.DType(c.Int("to", 0))
	whole := map[dtype.DType]bool{dtype.Bool: true, dtype.Int64: true, dtype.Int32: true, dtype.Int16: true,
		dtype.Int8: true, dtype.Uint64: true, dtype.Uint32: true, dtype.Uint16: true, dtype.Uint8: true}
	if !t.IsFloat() && !whole[t.DType] || !to.Float() && !whole[to] {
		return nil, op.Unsupported("cast from %v to %v", t.DType, to)
	}
	if err := c.Room(to, t.Dims); err != nil {
		return nil, err
	}
	switch {
	case to == t.DType:
		return op.One(t, nil)
	case to.Float():
		return op.One(execute.FromFloat64s(to, t.Dims, t.Float64s()))
	case t.IsFloat():
		x := make([]int64, t.Len())
		for i, v := range t.Float64s() {
			if x[i] = int64(v); to == dtype.Bool && v != 0 {
				x[i] = 1
			}
		}
		return op.One(execute.FromInt64s(to, t.Dims, x))
	}
	x := t.Int64s()
	if to == dtype.Bool {
		for i, v := range x {
			if v != 0 {
				x[i] = 1
			}
		}
	}
	return op.One(execute.FromInt64s(to, t.Dims, x))
}
