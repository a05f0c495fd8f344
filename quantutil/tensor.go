package quantutil

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"onnxquant/formats/dtype"
)

// Tensor is an array of values of one type.
type Tensor struct {
	DType dtype.DType
	Shape []int
	Data  []float64 // in C order, the last axis fastest; each a value of DType
}

// NewTensor returns a tensor of the values of data, cast to t.
func NewTensor(t dtype.DType, data []float64, shape ...int) (*Tensor, error) {
	x := &Tensor{DType: t, Shape: slices.Clone(shape), Data: slices.Clone(data)}
	if err := x.check(); err != nil {
		return nil, err
	}
	for i, v := range x.Data {
		x.Data[i] = cast(t, v)
	}
	return x, nil
}

// FromFloat32 returns a float32 tensor of the values of data.
func FromFloat32(data []float32, shape ...int) (*Tensor, error) {
	x := &Tensor{DType: dtype.Float32, Shape: slices.Clone(shape), Data: make([]float64, len(data))}
	for i, v := range data {
		x.Data[i] = float64(v)
	}
	return x, x.check()
}

// FromBytes returns a tensor of type t from its elements' little-endian bytes, as ONNX
// holds them in raw_data. Numbers below a byte are one per byte.
func FromBytes(t dtype.DType, raw []byte, shape ...int) (*Tensor, error) {
	if !valid(t) {
		return nil, fmt.Errorf("tensor of %s", TypeName(t))
	}
	if len(raw)%size(t) != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of %s elements", len(raw), TypeName(t))
	}
	x := &Tensor{DType: t, Shape: slices.Clone(shape), Data: make([]float64, len(raw)/size(t))}
	for i := range x.Data {
		x.Data[i] = value(t, raw[i*size(t):])
	}
	return x, x.check()
}

// Bytes returns the elements' little-endian bytes, the inverse of FromBytes.
func (x *Tensor) Bytes() []byte {
	b := make([]byte, 0, len(x.Data)*size(x.DType))
	for _, v := range x.Data {
		b = appendBytes(x.DType, b, v)
	}
	return b
}

// Float32s returns the values, rounded to float32.
func (x *Tensor) Float32s() []float32 {
	y := make([]float32, len(x.Data))
	for i, v := range x.Data {
		y[i] = float32(v)
	}
	return y
}

// Astype returns a copy of x with its values cast to t.
func (x *Tensor) Astype(t dtype.DType) (*Tensor, error) {
	return NewTensor(t, x.Data, x.Shape...)
}

// check reports a tensor whose fields do not fit together.
func (x *Tensor) check() error {
	if x == nil {
		return fmt.Errorf("no tensor given")
	}
	if !valid(x.DType) {
		return fmt.Errorf("tensor of %s", TypeName(x.DType))
	}
	n, err := elements(x.Shape)
	if err != nil {
		return err
	}
	if n != len(x.Data) {
		return fmt.Errorf("tensor of shape %v holds %d values", x.Shape, len(x.Data))
	}
	return nil
}

// checkFloat reports a tensor that is not one of floats.
func (x *Tensor) checkFloat() error {
	if err := x.check(); err != nil {
		return err
	}
	if !x.DType.Float() {
		return fmt.Errorf("tensor of %s: want floats", TypeName(x.DType))
	}
	return nil
}

// elements returns the product of a shape.
func elements(shape []int) (int, error) {
	n, zero := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		zero = zero || d == 0
	}
	if zero {
		return 0, nil
	}
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		n = lo
	}
	return int(n), nil
}

// split returns the elements before, along and after an axis: shape is taken as
// [outer, length, inner]. The shape is that of a checked tensor.
func split(shape []int, axis int) (outer, length, inner int) {
	outer, _ = elements(shape[:axis])
	inner, _ = elements(shape[axis+1:])
	return outer, shape[axis], inner
}

// ceilDiv returns a/b rounded up.
func ceilDiv(a, b int) int {
	n := a / b
	if a%b > 0 {
		n++
	}
	return n
}
