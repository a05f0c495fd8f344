package qlora

import (
	"fmt"

	"onnxquant/internal/kernels"
	"onnxquant/quantutil"
)

// BlockSize is the usual number of elements that share a scale.
const BlockSize = 64

// Codec quantizes weights to the values of a table, each block with a scale. It works
// on pieces of a weight as int4.Codec does, and its methods mean the same. There are
// no zero points: arguments for them, and for the lower ends of ranges, are not used.
//
// Methods hold no state and may run at once. They panic if slices do not fit
// together.
type Codec struct {
	Table Table
	Type  quantutil.DType // of weights and scales: Float32, Float16 or BFloat16
}

// Validate reports a codec whose fields name no format.
func (c Codec) Validate() error {
	if !c.Table.valid() {
		return fmt.Errorf("%s", c.Table)
	}
	return quantutil.CheckWeightType(c.Type)
}

// CodeBits returns the size of a code, 4.
func (c Codec) CodeBits() int { return 4 }

// HasZeroPoints returns false.
func (c Codec) HasZeroPoints() bool { return false }

// ObserveColumns raises hi, which starts as 0, to the largest magnitudes of blocks
// that lie in columns, by some of their rows.
func (c Codec) ObserveColumns(lo, hi, x []float32) {
	kernels.CheckColumns(len(x), len(hi))
	kernels.AbsMaxColumns(hi, x)
}

// ObserveBlocks raises hi, which starts as 0, to the largest magnitudes of blocks
// that lie in rows of k elements.
func (c Codec) ObserveBlocks(lo, hi, x []float32, k, block int) {
	kernels.AbsMaxBlocks(hi, x, k, block)
}

// Scales sets the scales of blocks to their largest magnitudes. It reports whether
// all are finite; if not, the result is of no use.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	copy(scale[:len(hi)], hi)
	return kernels.IsFinite(kernels.AbsMax(0, hi))
}

// EncodeColumns sets q to the codes of x, rows of len(scale) finite elements.
func (c Codec) EncodeColumns(q []byte, x, scale []float32, zero []byte) {
	kernels.CheckColumns(len(x), len(scale))
	kernels.EncodeNearestColumns(q, x, scale, tables[c.Table].nearest)
}

// EncodeBlocks sets q to the codes of x, rows of k finite elements cut into blocks.
func (c Codec) EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) {
	nearest := tables[c.Table].nearest
	for i, b := range kernels.Blocks(len(x), k, block) {
		kernels.EncodeNearestBlock(q[b.Start:b.End], x[b.Start:b.End], scale[i], nearest)
	}
}

// DecodeColumns sets x to what the codes q stand for, the inverse of EncodeColumns.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	kernels.CheckColumns(len(q), len(scale))
	kernels.DecodeColumns(x, q, scale, 1, &tables[c.Table].decode)
	c.Type.RoundAll(x[:len(q)])
}

// DecodeBlocks sets x to what the codes q stand for, the inverse of EncodeBlocks.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	values := &tables[c.Table].decode
	for i, b := range kernels.Blocks(len(q), k, block) {
		kernels.DecodeBlock(x[b.Start:b.End], q[b.Start:b.End], scale[i], values)
	}
	c.Type.RoundAll(x[:len(q)])
}
