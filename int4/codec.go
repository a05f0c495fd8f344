package int4

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// Codec is an integer format and the float type it represents. Its methods are safe for
// concurrent use. They panic if the lengths of slices do not match.
type Codec struct {
	Bits      int         // 2, 4 or 8
	Signed    bool        // codes around 0, else from 0 up
	ZeroPoint bool        // each block has its own zero point
	Type      dtype.DType // of weights and scales: Float32 (or 0), Float16 or BFloat16

	// Scale is the type of the stored scales of float32 weights: Float32 (or 0), Float16, Int8 or
	// Uint8. With the last two, scales are multiples of Step, which WithStep sets; until then, any
	// number. Uint8 is for positive scales.
	Scale dtype.DType
	Step  float32
}

// Validate returns an error if the fields are not a valid format.
func (c Codec) Validate() error {
	switch c.Bits {
	case 2, 4, 8:
	default:
		return fmt.Errorf("codes of %d bits: want 2, 4 or 8", c.Bits)
	}
	if err := c.checkScale(); err != nil {
		return err
	}
	return blocks.CheckType(c.Type)
}

// HasZeroPoints reports whether the format stores zero points. An unsigned
// symmetric one does: they are all 2^(Bits-1).
func (c Codec) HasZeroPoints() bool { return c.ZeroPoint || !c.Signed }

// Limits returns the smallest and the largest code.
func (c Codec) Limits() (lo, hi int32) { return c.limits() }

func (c Codec) limits() (lo, hi int32) {
	n := int32(1) << c.Bits
	if c.Signed {
		return -n / 2, n/2 - 1
	}
	return 0, n - 1
}

// middle is the zero point of a symmetric format.
func (c Codec) middle() int32 {
	if c.Signed {
		return 0
	}
	return 1 << (c.Bits - 1)
}

// step rounds an intermediate result to the type of the arithmetic.
func (c Codec) step(x float32) float32 {
	if c.Type == dtype.Float16 {
		return dtype.RoundFloat16(x)
	}
	return x
}

// ObserveColumns widens the ranges of blocks that lie in columns by the elements of some
// rows. x has rows of len(hi) elements; element i of each row belongs to block i. Ranges
// start as 0.
//
// With a zero point, lo and hi become the smallest and the largest element, and include 0.
// A symmetric format keeps the amax in hi and ignores lo.
func (c Codec) ObserveColumns(lo, hi, x []float32) {
	kernels.CheckColumns(len(x), len(hi))
	if c.ZeroPoint {
		kernels.RangeColumns(lo, hi, x)
	} else {
		kernels.AbsMaxColumns(hi, x)
	}
}

// ObserveBlocks widens the ranges of blocks that lie in rows. x is rows of k elements. Each row is cut
// into blocks of the given length, the last one shorter if the block size does not divide k. The
// ranges are those of the first row's blocks, then the second's, and so on.
//
// A row may come in pieces. Each piece is passed with its own length as k, and with the ranges from
// its first block on. A piece that starts inside a block must not reach beyond that block.
func (c Codec) ObserveBlocks(lo, hi, x []float32, k, block int) {
	if c.ZeroPoint {
		kernels.RangeBlocks(lo, hi, x, k, block)
	} else {
		kernels.AbsMaxBlocks(hi, x, k, block)
	}
}

// EncodeColumns sets q to the codes of x, rows of len(scale) elements. Element i of each row has
// scale[i] and, if the format stores zero points, zero[i]. Elements are finite.
func (c Codec) EncodeColumns(q []byte, x, scale []float32, zero []byte) {
	c.QuantizeColumns(q, x, scale, zero)
}

// EncodeBlocks sets q to the codes of x, rows of k elements cut into blocks as in ObserveBlocks. Each
// block has one scale and, if the format stores zero points, one zero point. Elements are finite.
func (c Codec) EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) {
	c.QuantizeBlocks(q, x, scale, zero, k, block)
}

// QuantizeColumns is EncodeColumns and also returns the errors of the decoded codes,
// without another pass to decode them.
func (c Codec) QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats {
	var s kernels.ErrorSums
	kernels.QuantizeColumns(q, x, scale, c.zeros(zero), c.format(), &s)
	return blocks.Stats(len(x), &s)
}

// QuantizeBlocks is EncodeBlocks and also returns the errors of the decoded codes,
// without another pass to decode them.
func (c Codec) QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats {
	var s kernels.ErrorSums
	kernels.QuantizeBlocks(q, x, scale, c.zeros(zero), k, block, c.format(), &s)
	return blocks.Stats(len(x), &s)
}

// format is the format in the terms of package kernels.
func (c Codec) format() kernels.Format {
	lo, hi := c.limits()
	return kernels.Format{Lo: lo, Hi: hi, Type: blocks.Type(c.Type)}
}

// zeros returns the zero points of blocks, or a single one for all.
func (c Codec) zeros(zero []byte) []byte {
	if c.ZeroPoint {
		return zero
	}
	return []byte{byte(c.middle())}
}

// DecodeColumns decodes q to x, rounded to Type: the inverse of EncodeColumns.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	kernels.CheckColumns(len(q), len(scale))
	lo, _ := c.limits()
	if c.ZeroPoint {
		kernels.DequantizeColumnsZero(x, q, scale, zero, lo)
	} else {
		kernels.DequantizeColumns(x, q, scale, c.middle(), lo)
	}
	c.Type.RoundAll(x[:len(q)])
}

// DecodeBlocks decodes q to x, rounded to Type: the inverse of EncodeBlocks.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	lo, _ := c.limits()
	for i, b := range kernels.Blocks(len(q), k, block) {
		kernels.DequantizeBlock(x[b.Start:b.End], q[b.Start:b.End], scale[i], c.zero(zero, i), lo)
	}
	c.Type.RoundAll(x[:len(q)])
}

// zero returns the value of zero point i of a block.
func (c Codec) zero(zero []byte, i int) int32 {
	switch {
	case !c.ZeroPoint:
		return c.middle()
	case c.Signed:
		return int32(int8(zero[i]))
	}
	return int32(zero[i])
}
