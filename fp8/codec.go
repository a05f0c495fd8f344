package fp8

import (
	"fmt"

	"onnxquant/internal/kernels"
	"onnxquant/quantutil"
)

// Codec quantizes weights to a format, each block with a scale. It works on pieces
// of a weight as int4.Codec does, and its methods mean the same. There are no zero
// points: arguments for them, and for the lower ends of ranges, are not used.
//
// Methods hold no state and may run at once. They panic if slices do not fit
// together.
type Codec struct {
	Format Format
	Type   quantutil.DType // of weights and scales: Float32, Float16 or BFloat16
}

// Validate reports a codec whose fields name no format.
func (c Codec) Validate() error {
	if !c.Format.valid() {
		return fmt.Errorf("%s", c.Format)
	}
	return quantutil.CheckWeightType(c.Type)
}

// CodeBits returns the size of a code, 8.
func (c Codec) CodeBits() int { return 8 }

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

// Scales turns the largest magnitudes of blocks into their scales. It reports
// whether all are finite; if not, the result is of no use.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	top := c.Format.Max()
	finite = true
	for i, amax := range hi {
		if !kernels.IsFinite(amax) {
			finite = false
			continue
		}
		scale[i] = quantutil.ScaleFor(c.Type, amax, top)
	}
	return finite
}

// EncodeColumns sets q to the codes of x, rows of len(scale) finite elements.
func (c Codec) EncodeColumns(q []byte, x, scale []float32, zero []byte) {
	kernels.CheckColumns(len(x), len(scale))
	kernels.EncodeFloatColumns(q, x, scale, 1, formats[c.Format].kind)
}

// EncodeBlocks sets q to the codes of x, rows of k finite elements cut into blocks.
func (c Codec) EncodeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) {
	kind := formats[c.Format].kind
	for i, b := range kernels.Blocks(len(x), k, block) {
		kernels.EncodeFloatBlock(q[b.Start:b.End], x[b.Start:b.End], scale[i], kind)
	}
}

// DecodeColumns sets x to what the codes q stand for, the inverse of EncodeColumns.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	kernels.CheckColumns(len(q), len(scale))
	kernels.DecodeColumns(x, q, scale, 1, &formats[c.Format].kind.Values)
	c.Type.RoundAll(x[:len(q)])
}

// DecodeBlocks sets x to what the codes q stand for, the inverse of EncodeBlocks.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	values := &formats[c.Format].kind.Values
	for i, b := range kernels.Blocks(len(q), k, block) {
		kernels.DecodeBlock(x[b.Start:b.End], q[b.Start:b.End], scale[i], values)
	}
	c.Type.RoundAll(x[:len(q)])
}
