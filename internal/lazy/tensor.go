package lazy

import (
	"io"

	"onnxquant/formats/dtype"
)

// Tensor is a constant tensor whose elements are computed when they are read, as float32.
// That represents all codes and scales exactly, except int32 beyond 2^24, which is rounded
// as DequantizeLinear rounds it.
type Tensor struct {
	DType dtype.DType
	Shape []int64
	Read  func(a *Arena, dst []float32, off int64) error // elements off, off+1, …; at most MaxRead at once

	Stored io.ReaderAt // the bytes of the elements; nil if they are computed
}

// Size is the number of elements.
func (x *Tensor) Size() int64 {
	n, _ := dtype.Elements(x.Shape)
	return n
}

// Stored returns the tensor whose elements r stores.
func Stored(typ dtype.DType, shape []int64, r io.ReaderAt) *Tensor {
	return &Tensor{DType: typ, Shape: shape, Stored: r, Read: func(a *Arena, dst []float32, off int64) error {
		return ReadNumbers(a, dst, r, typ, off)
	}}
}

// Reshaped returns the elements with another shape of the same size.
func (x *Tensor) Reshaped(shape []int64) *Tensor {
	return &Tensor{DType: x.DType, Shape: shape, Read: x.Read, Stored: x.Stored}
}

// ReadAll reads any number of elements, in steps of MaxRead.
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
