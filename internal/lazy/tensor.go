package lazy

import (
	"io"

	"onnxquant/formats/dtype"
)

// Tensor is a constant tensor whose elements are computed as they are asked
// for, so that it takes no memory. They are given as float32, which has every
// number that quantized weights are made of; an int32 beyond 2^24 is rounded, as
// DequantizeLinear does.
type Tensor struct {
	DType dtype.DType
	Shape []int64
	Read  func(a *Arena, dst []float32, off int64) error

	Stored io.ReaderAt // where the elements are stored as they are; nil if they are computed
}

// Size is the number of elements.
func (x *Tensor) Size() int64 {
	n, _ := dtype.Elements(x.Shape)
	return n
}

// Stored are the elements of a tensor whose content r holds.
func Stored(typ dtype.DType, shape []int64, r io.ReaderAt) *Tensor {
	return &Tensor{DType: typ, Shape: shape, Stored: r, Read: func(a *Arena, dst []float32, off int64) error {
		return ReadNumbers(a, dst, r, typ, off)
	}}
}

// Reshaped gives the numbers another shape.
func (x *Tensor) Reshaped(shape []int64) *Tensor {
	return &Tensor{DType: x.DType, Shape: shape, Read: x.Read, Stored: x.Stored}
}

// ReadAll reads elements in steps that keep buffers small.
func (x *Tensor) ReadAll(a *Arena, dst []float32, off int64) error {
	for len(dst) > 0 {
		n := min(len(dst), MaxRead)
		if err := x.Read(a, dst[:n], off); err != nil {
			return err
		}
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}
