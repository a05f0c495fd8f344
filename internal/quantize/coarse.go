package quantize

import (
	"math"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
)

// A block is coarse if it loses precision because its scale or its min has few bits: float16 has
// steps of 2^-24 near 0. The same block of larger elements has far less of an error.

// fewBits is the magnitude below which a float16 has 6 bits or fewer.
const fewBits = 0x1p-18

// coarseBlocks counts the elements of the coarse blocks of a tile, whose elements are x and
// decoded, in block order. Blocks are encoded again for that, with their largest element near 1.
func (b *Buffers) coarseBlocks(t Tile, x, decoded []float32) (n int64, err error) {
	const much = 4 // times the squared error
	s := &b.blocks
	at := 0
	for size := range t.lengths() {
		from, was := x[:size], decoded[:size]
		x, decoded = x[size:], decoded[size:]
		i := at
		at++
		if top := kernels.AbsMax(0, from); t.Found == nil && top > 0 && (hasFewBits(s.parts.Scales[i]) || hasFewBits(s.parts.Mins[i])) {
			_, exponent := math.Frexp(float64(top))
			enlarge := float32(math.Ldexp(1, -exponent))
			least, err := b.errorOfBlock(t, i, from, enlarge)
			if err != nil {
				return 0, err
			}
			if is := squaredError(from, was, enlarge); is > much*least {
				n += size
			}
		}
	}
	return n, nil
}

// hasFewBits reports whether a float16 number has few bits. 0 is exact.
func hasFewBits(v float32) bool { return v != 0 && max(v, -v) < fewBits }

// errorOfBlock returns the squared error of block i of a tile, with the elements x times a factor.
func (b *Buffers) errorOfBlock(t Tile, i int, x []float32, factor float32) (float64, error) {
	s, e := &b.blocks, t.Encoding
	enlarged := buffer.Grow(&s.enlarged, 2*t.Block)
	x1, x2 := enlarged[:t.Block], enlarged[t.Block:]
	clear(x1)
	for k, v := range x {
		x1[k] = v * factor
	}
	var importance []float32
	if t.Importance != nil {
		first := int64(i) % t.Blocks() * t.Block
		importance = s.importance[first : first+t.Block]
	}
	block := buffer.Grow(&s.block, int64(e.Bytes))
	if err := e.Quantize(block, x1, int(t.Block), importance, 1); err != nil {
		return 0, err
	}
	if err := e.Dequantize(x2, block, int(t.Block), 1); err != nil {
		return 0, err
	}
	return squaredError(x1[:len(x)], x2, 1), nil
}

// squaredError returns the sum of the squared errors of y against x, both times a factor.
func squaredError(x, y []float32, factor float32) (sum float64) {
	for i, v := range x {
		e := float64(factor) * (float64(y[i]) - float64(v))
		sum += float64(e * e) // rounded on every machine
	}
	return sum
}
