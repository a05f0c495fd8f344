package nvfp4

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// BlockSize is the number of elements that share a scale by the definition.
const BlockSize = 16

const (
	e2m1Max = 6
	e4m3Max = 448
	e4m3Min = 0x1p-9
)

// TensorScale returns the scale of a tensor whose largest magnitude is amax, which
// must be finite.
func TensorScale(amax float32) (float32, error) {
	if !kernels.IsFinite(amax) {
		return 0, errors.New("a tensor with NaN or infinity has no NVFP4 scale")
	}
	if s := amax / (e4m3Max * e2m1Max); s > 0 {
		return s, nil
	}
	return 1, nil
}

// ScaleByte returns the E4M3 code of a block's scale, clamped to 2^-9 … 448 and rounded to nearest,
// ties to even, as in the reference exporter.
func ScaleByte(scale float32) byte {
	return kernels.E4M3FN.Code(max(scale, e4m3Min), 1)
}

// ScaleBytes sets each byte of dst to the ScaleByte of its scale.
func ScaleBytes(dst []byte, scale []float32) {
	var clamped [256]float32
	var errors kernels.ErrorSums // unused
	for len(scale) > 0 {
		n := min(len(scale), len(clamped))
		for i, s := range scale[:n] {
			clamped[i] = max(s, e4m3Min)
		}
		kernels.QuantizeFloatBlocks(dst[:n], clamped[:n], one, 1, n, n, kernels.E4M3FN, kernels.Float32, &errors)
		dst, scale = dst[n:], scale[n:]
	}
}

var one = []float32{1}

// EncodeE2M1 returns the code of x, as the reference exporter does: -0 has code 0
// and NaN has code 7.
func EncodeE2M1(x float32) byte {
	if x != x {
		return 7
	}
	return kernels.SignlessE2M1.Code(x, 1)
}

// DecodeE2M1 returns the value of the code in the low half of a byte.
func DecodeE2M1(code byte) float32 { return kernels.E2M1.Values[code&15] }

// Codec quantizes the blocks of a tensor whose scale is known. It works on pieces of a
// weight like int4.Codec, with the same methods. It has no zero points, and ignores
// arguments for them and for the lower ends of ranges.
//
// Its methods are safe for concurrent use. They panic if the lengths of slices do not
// match.
type Codec struct {
	blocks.Symmetric // HasZeroPoints, ObserveColumns, ObserveBlocks

	TensorScale float32     // see the function of that name
	Type        dtype.DType // of weights: Float32 (or 0), Float16 or BFloat16
}

// Validate returns an error if the fields are not a valid format.
func (c Codec) Validate() error {
	if !(c.TensorScale > 0) || !kernels.IsFinite(c.TensorScale) {
		return fmt.Errorf("tensor scale %v: want a positive number", c.TensorScale)
	}
	return blocks.CheckType(c.Type)
}

// Scales turns the amax of each block into its scale. Scales are E4M3 numbers; see
// ScaleByte. It reports whether all are finite; if not, the result is undefined.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	scale = scale[:len(hi)]
	for i, amax := range hi {
		if !kernels.IsFinite(amax) {
			return false
		}
		scale[i] = c.blockScale(amax)
	}
	var codes [256]byte
	for some := range slices.Chunk(scale, len(codes)) {
		ScaleBytes(codes[:len(some)], some)
		for i := range some {
			some[i] = kernels.E4M3FN.Values[codes[i]]
		}
	}
	return true
}

// scale returns the scale of a block of finite magnitude, as stored.
func (c Codec) scale(amax float32) float32 {
	return kernels.E4M3FN.Values[ScaleByte(c.blockScale(amax))]
}

// blockScale returns a block's scale, not yet rounded.
func (c Codec) blockScale(amax float32) float32 {
	if s := amax / (e2m1Max * c.TensorScale); s != 0 {
		return s
	}
	return 1
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
	return blocks.QuantizeColumns(q, x, scale, c.TensorScale, kernels.SignlessE2M1, c.Type)
}

// QuantizeBlocks is EncodeBlocks and also returns the errors of the decoded codes,
// without another pass to decode them.
func (c Codec) QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats {
	return blocks.QuantizeBlocks(q, x, scale, c.TensorScale, k, block, kernels.SignlessE2M1, c.Type)
}

// DecodeColumns decodes q to x, the inverse of EncodeColumns.
func (c Codec) DecodeColumns(x []float32, q []byte, scale []float32, zero []byte) {
	blocks.DecodeColumns(x, q, scale, c.TensorScale, &kernels.E2M1.Values, c.Type)
}

// DecodeBlocks decodes q to x, the inverse of EncodeBlocks.
func (c Codec) DecodeBlocks(x []float32, q []byte, scale []float32, zero []byte, k, block int) {
	blocks.DecodeBlocks(x, q, scale, c.TensorScale, k, block, &kernels.E2M1.Values, c.Type)
}
