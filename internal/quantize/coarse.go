package quantize

import (
	"math"

	"onnxquant/formats/ggml"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
)

// A block is coarse if its scale or its min has few bits, which costs precision: float16 has
// steps of 2^-24 near 0. The same block of larger elements has a much smaller relative error.

// fewBits is the magnitude below which a float16 has 6 bits or fewer.
const fewBits = 0x1p-18

// hasFewBits reports whether a float16 number has few bits. 0 does not: it is exact.
func hasFewBits(v float32) bool { return v != 0 && max(v, -v) < fewBits }

// Coarse finds coarse blocks. The zero value is ready for use by one goroutine.
type Coarse struct {
	parts    ggml.Parts
	enlarged []float32 // elements of a block, enlarged, and decoded again
	block    []byte    // the encoded block in between
}

// Count returns the number of elements in coarse blocks. x are the elements of the blocks, decoded
// the decoded elements. importance is that of the columns of a row, or nil.
func (c *Coarse) Count(e *ggml.Encoding, packed []byte, x, decoded, importance []float32) (n int64, err error) {
	if e.Form == nil {
		return 0, nil
	}
	growParts(&c.parts, e, int64(len(x)/e.Elements))
	e.Form.Split(c.parts, packed)
	for i, scale := range c.parts.Scales {
		from, to := i*e.Elements, (i+1)*e.Elements
		var part []float32
		if importance != nil {
			part = importance[from%len(importance):][:e.Elements]
		}
		coarse, err := c.isCoarse(e, scale, c.parts.Mins[i], x[from:to], decoded[from:to], part)
		if err != nil {
			return 0, err
		}
		if coarse {
			n += int64(e.Elements)
		}
	}
	return n, nil
}

// isCoarse reports whether a block is coarse. For comparison it encodes the block again, scaled so
// that the largest element is near 1. x and decoded may be shorter than a block.
func (c *Coarse) isCoarse(e *ggml.Encoding, scale, least float32, x, decoded, importance []float32) (bool, error) {
	const much = 4 // ratio of squared errors
	top := kernels.AbsMax(0, x)
	if top == 0 || !hasFewBits(scale) && !hasFewBits(least) {
		return false, nil
	}
	_, exponent := math.Frexp(float64(top))
	enlarge := float32(math.Ldexp(1, -exponent))
	possible, err := c.errorOf(e, x, importance, enlarge)
	return squaredError(x, decoded, enlarge) > much*possible, err
}

// errorOf encodes the elements x times a factor and returns the squared error of the block.
func (c *Coarse) errorOf(e *ggml.Encoding, x, importance []float32, factor float32) (float64, error) {
	enlarged := buffer.Grow(&c.enlarged, int64(2*e.Elements))
	x1, x2 := enlarged[:e.Elements], enlarged[e.Elements:]
	clear(x1)
	for k, v := range x {
		x1[k] = v * factor
	}
	block := buffer.Grow(&c.block, int64(e.Bytes))
	if err := e.Quantize(block, x1, e.Elements, importance, 1); err != nil {
		return 0, err
	}
	if err := e.Dequantize(x2, block, e.Elements, 1); err != nil {
		return 0, err
	}
	return squaredError(x1[:len(x)], x2, 1), nil
}

// squaredError returns the sum of the squared errors of y against x. Both are multiplied by factor.
func squaredError(x, y []float32, factor float32) (sum float64) {
	for i, v := range x {
		e := float64(factor) * (float64(y[i]) - float64(v))
		sum += float64(e * e) // the conversion prevents fused multiply-add
	}
	return sum
}

// coarseBlocks counts the elements of a tile's coarse blocks. x are the elements, decoded the
// decoded elements, both in block order.
func (b *Buffers) coarseBlocks(t Tile, x, decoded []float32) (n int64, err error) {
	s := &b.blocks
	at := int64(0)
	for size := range t.lengths() {
		from, was, i := x[:size], decoded[:size], at
		x, decoded, at = x[size:], decoded[size:], at+1
		if t.Found != nil {
			continue
		}
		var importance []float32
		if t.Importance != nil {
			importance = s.importance[i%t.Blocks()*t.Block:][:t.Block]
		}
		coarse, err := s.coarse.isCoarse(t.Encoding, s.parts.Scales[i], s.parts.Mins[i], from, was, importance)
		if err != nil {
			return 0, err
		}
		if coarse {
			n += size
		}
	}
	return n, nil
}
