package qlora

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// BlockSize is the usual number of elements that share a scale.
const BlockSize = 64

// Codec quantizes weights to the values of a table, each block with a scale. It works on
// pieces of a weight like int4.Codec, with the same methods. It has no zero points, and
// ignores arguments for them and for the lower ends of ranges.
//
// Its methods are safe for concurrent use. They panic if the lengths of slices do not
// match.
type Codec struct {
	blocks.Symmetric // HasZeroPoints, ObserveColumns, ObserveBlocks

	Table Table
	Type  dtype.DType // of weights and scales: Float32 (or 0), Float16 or BFloat16

	// Reciprocal computes codes as ONNX Runtime's MatMulBnb4Quantizer does.
	Reciprocal bool
}

// Validate returns an error if the fields are not a valid format.
func (c Codec) Validate() error {
	if !c.Table.valid() {
		return fmt.Errorf("%s", c.Table)
	}
	return blocks.CheckType(c.Type)
}

// Scales sets the scale of each block to its amax. It reports whether all are finite; if
// not, the result is undefined.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	copy(scale[:len(hi)], hi)
	return kernels.IsFinite(kernels.AbsMax(0, hi))
}

// EncodeColumns sets q to the codes of x, rows of len(scale) finite elements.
func (c Codec) EncodeColumns(q []byte, x, scale []float32, zero []byte) {
	c.QuantizeColumns(q, x, scale, zero)
}

// EncodeBlocks sets q to the codes of x, rows of k finite elements cut into blocks.
func (c Codec) EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) {
	c.QuantizeBlocks(q, x, scale, zero, k, block)
}

// QuantizeColumns is EncodeColumns and also returns the errors of the decoded codes,
// without another pass to decode them.
func (c Codec) QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats {
	if c.Reciprocal {
		return c.reciprocalColumns(q, x, scale)
	}
	var s kernels.ErrorSums
	kernels.QuantizeNearestColumns(q, x, scale, tables[c.Table].nearest, blocks.Type(c.Type), &s)
	return blocks.Stats(len(x), &s)
}

// QuantizeBlocks is EncodeBlocks and also returns the errors of the decoded codes,
// without another pass to decode them.
func (c Codec) QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats {
	if c.Reciprocal {
		return c.reciprocalBlocks(q, x, scale, k, block)
	}
	var s kernels.ErrorSums
	kernels.QuantizeNearestBlocks(q, x, scale, k, block, tables[c.Table].nearest, blocks.Type(c.Type), &s)
	return blocks.Stats(len(x), &s)
}

// DecodeColumns decodes q to x, the inverse of EncodeColumns.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	blocks.DecodeColumns(x, q, scale, 1, &tables[c.Table].nearest.Values, c.Type)
}

// DecodeBlocks decodes q to x, the inverse of EncodeBlocks.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	blocks.DecodeBlocks(x, q, scale, 1, k, block, &tables[c.Table].nearest.Values, c.Type)
}
