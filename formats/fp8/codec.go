package fp8

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/blocks"
)

// Codec quantizes weights to a format, each block with a scale. It works on pieces of a
// weight like int4.Codec, with the same methods. It has no zero points, and ignores
// arguments for them and for the lower ends of ranges.
//
// Its methods are safe for concurrent use. They panic if the lengths of slices do not
// match.
type Codec struct {
	blocks.Symmetric // HasZeroPoints, ObserveColumns, ObserveBlocks

	Format Format
	Type   dtype.DType // of weights and scales: Float32 (or 0), Float16 or BFloat16
}

// Validate returns an error if the fields are not a valid format.
func (c Codec) Validate() error {
	if !c.Format.valid() {
		return fmt.Errorf("%s", c.Format)
	}
	return blocks.CheckType(c.Type)
}

// Scales turns the amax of each block into its scale. It reports whether all are finite;
// if not, the result is undefined.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	top := c.Format.Max()
	return blocks.Scales(scale, hi, func(amax float32) float32 { return scaleFor(c.Type, amax, top) })
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
	return blocks.QuantizeColumns(q, x, scale, 1, formats[c.Format].kind, c.Type)
}

// QuantizeBlocks is EncodeBlocks and also returns the errors of the decoded codes,
// without another pass to decode them.
func (c Codec) QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats {
	return blocks.QuantizeBlocks(q, x, scale, 1, k, block, formats[c.Format].kind, c.Type)
}

// DecodeColumns decodes q to x, the inverse of EncodeColumns.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	blocks.DecodeColumns(x, q, scale, 1, &formats[c.Format].kind.Values, c.Type)
}

// DecodeBlocks decodes q to x, the inverse of EncodeBlocks.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	blocks.DecodeBlocks(x, q, scale, 1, k, block, &formats[c.Format].kind.Values, c.Type)
}
