package op

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
)

// Floats returns the elements of a floating-point tensor as float32, to be read only.
func Floats(t *execute.Tensor) []float32 {
	if t.DType == dtype.Float32 {
		return execute.Numbers[float32](t)
	}
	return t.Float32s()
}

// Doubles is Floats as float64, for any numbers.
func Doubles(t *execute.Tensor) []float64 {
	if t.DType == dtype.Float64 {
		return execute.Numbers[float64](t)
	}
	return t.Float64s()
}

// New makes a tensor whose elements are undefined. A nil call takes fresh memory.
func (c *Call) New(typ dtype.DType, dims []int64) (*execute.Tensor, error) {
	n, err := execute.Bytes(typ, dims)
	if err != nil || c == nil || typ == dtype.String {
		return execute.New(typ, dims)
	}
	return &execute.Tensor{DType: typ, Dims: dims, Data: c.Memory(int(n))}, nil
}

// NewFloats makes a tensor of a floating-point type. fill sets its elements, which are undefined before.
func (c *Call) NewFloats(typ dtype.DType, dims []int64, fill func(y []float32) error) (*execute.Tensor, error) {
	if err := c.Room(typ, dims); err != nil {
		return nil, err
	}
	t, err := c.New(dtype.Float32, dims)
	if err != nil {
		return nil, err
	}
	y := kernels.View[float32](t.Data)
	if y == nil { // a big-endian machine
		y = make([]float32, t.Len())
	}
	if err := fill(y); err != nil || typ == dtype.Float32 && len(y) > 0 && &kernels.Bytes(y)[0] == &t.Data[0] {
		return t, err
	}
	return execute.FromFloat32s(typ, dims, y)
}

// Int64 makes a tensor of INT64.
func Int64(dims []int64, x []int64) *execute.Tensor { return execute.Made(dtype.Int64, dims, x) }

// Numbers makes a tensor of any type of numbers from float64, which integers truncate.
func Numbers(typ dtype.DType, dims []int64, x []float64) (*execute.Tensor, error) {
	if typ.Float() {
		return execute.FromFloat64s(typ, dims, x)
	}
	whole := make([]int64, len(x))
	for i, v := range x {
		whole[i] = int64(v)
	}
	return execute.FromInt64s(typ, dims, whole)
}
