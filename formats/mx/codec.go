package mx

import (
	"fmt"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
)

// Format is a type of elements.
type Format uint8

// The formats. The zero Format is MXFP4.
const (
	MXFP4     Format = iota
	MXFP8E4M3        // the usual one of 8 bits
	MXFP8E5M2
)

var formats = [...]struct {
	name string
	kind *kernels.MiniFloat
	emax int
}{
	MXFP4:     {"mxfp4", kernels.E2M1, 2},
	MXFP8E4M3: {"mxfp8", kernels.E4M3FN, 8},
	MXFP8E5M2: {"mxfp8-e5m2", kernels.E5M2, 15},
}

// String returns a short name of the format, such as mxfp4.
func (f Format) String() string {
	if !f.valid() {
		return "unknown MX format"
	}
	return formats[f].name
}

func (f Format) valid() bool { return int(f) < len(formats) }

// Rule is a way to find the scale of a block.
type Rule uint8

const (
	Default   Rule = iota // OCP for MXFP4, Reference for MXFP8
	OCP                   // floor(log2(amax)) - emax, the specification's
	Reference             // ceil(log2(amax/largest)), ModelOpt's for MXFP8
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
	Rule   Rule
	Type   dtype.DType // of weights: Float32 (or 0), Float16 or BFloat16
}

// Validate returns an error if the fields are not a valid format.
func (c Codec) Validate() error {
	if !c.Format.valid() {
		return fmt.Errorf("%s", c.Format)
	}
	if c.Rule > Reference {
		return fmt.Errorf("unknown rule for MX scales")
	}
	return blocks.CheckType(c.Type)
}

// Scales turns the amax of each block into its scale. Scales are powers of two; see
// ScaleByte. It reports whether all are finite; if not, the result is undefined.
func (c Codec) Scales(scale []float32, zero []byte, lo, hi []float32) (finite bool) {
	return blocks.Scales(scale, hi, c.scale)
}

// scale returns the scale of a block of finite magnitude.
func (c Codec) scale(amax float32) float32 {
	s := powerOfTwo(c.exponent(amax))
	if amax < 0x1p13 { // decoded at most twice that, which is finite in every type
		return s
	}
	kind := formats[c.Format].kind
	if y := kind.Values[kind.Code(amax, s)] * s; !kernels.IsFinite(c.Type.Round(y)) {
		s /= 2
	}
	return s
}

// exponent returns the exponent of a block's scale.
func (c Codec) exponent(amax float32) int {
	if amax == 0 {
		return -127
	}
	d := &formats[c.Format]
	if c.Rule == OCP || c.Rule == Default && c.Format == MXFP4 {
		_, e := math.Frexp(float64(amax)) // amax is from 2^(e-1) up and below 2^e
		return e - 1 - d.emax
	}
	q := c.Type.Round(amax / d.kind.Values[d.kind.Top])
	if e, ok := c.usualCeilLog2(q); ok {
		return e
	}
	log := c.Type.Round(float32(math.Log2(float64(q))))
	return int(math.Ceil(max(float64(log), -127)))
}

// usualCeilLog2 returns ceil(log2(q)) for most numbers without computing a logarithm: for q from 2^-31
// up, below 2^32, and more than slightly above a power of two. For these, rounding the logarithm does
// not change the result. If q is at least an eighth above a power of two, the logarithm is at least
// 0.16 above an integer; rounding to bfloat16, the coarsest type, takes away at most 1/16. For
// float32, 2^-18 above is enough, because rounding takes away at most 2^-20.
func (c Codec) usualCeilLog2(q float32) (e int, ok bool) {
	least := uint32(1 << 20) // of the fraction's bits
	if blocks.Type(c.Type) == kernels.Float32 {
		least = 1 << 5
	}
	b := math.Float32bits(q)
	e = int(b>>23) - 127
	return e + 1, -31 <= e && e < 32 && b&(1<<23-1) >= least
}

// powerOfTwo returns 2^e, e clamped to what E8M0 has.
func powerOfTwo(e int) float32 { return DecodeE8M0(byte(min(max(e, -127), 127) + 127)) }

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
