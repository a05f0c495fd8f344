// Package coded has contents of tensors that another file stores as codes: elements to read, like any content, and the
// codes, scales and zero points that these elements are computed from. A conversion that asks for the same format can
// store them as they are.
package coded

import (
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/spec"
)

// Content is the content of a matrix, or of a stack of matrices. It is immutable.
type Content struct {
	io.ReaderAt // the elements, in the type of the tensor

	From      string // what wrote the codes, for messages: "GPTQ"
	Format    spec.Format
	Axis      int   // that is summed over, one of the last two; blocks run along it
	Block     int64 // elements of a block; the length of the axis: one block
	ZeroPoint bool
	ScaleType dtype.DType // of the scales in the file, or of the tensor if that is smaller

	// Codes have a byte for each element, Scales a float32 for each block, and Zeros a byte for each block, in the order
	// of the tensor. Codes and zero points of signed formats are two's complement.
	Codes, Scales, Zeros io.ReaderAt

	// Mins has a float32 for each block, which is subtracted from the decoded elements; nil: nothing is.
	Mins io.ReaderAt

	Turned *Content // the transpose, if the codes lie so in the file: it is read faster; or nil

	TensorScale float32 // multiplies the scales, in formats of two levels
}

// Transposed is the content of a matrix whose transpose is stored, which is read faster.
type Transposed struct {
	io.ReaderAt
	From io.ReaderAt // the transpose
}

// Of returns the codes of a content, or nil if it has none. Rounding to another type of floats keeps them.
func Of(p *modelfile.Payload) *Content {
	if e := p.Made(); e != nil && e.Round != nil {
		return Of(e.From)
	}
	c, _ := p.Reader().(*Content)
	return c
}

// Override is the entry of a precision_info that asks for the format of the codes. k is the length of Axis.
func (c *Content) Override(k int64) *spec.Override {
	block, rtn := int(c.Block), spec.RTN
	if c.Block == k {
		block = spec.PerChannel
	}
	return &spec.Override{Format: &c.Format, Block: &block, ZeroPoint: &c.ZeroPoint, Algorithm: &rtn}
}
