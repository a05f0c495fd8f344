package quantize

import "onnxquant/internal/buffer"

// A block has vanished if all of it decodes to 0 although some elements are not 0: its stored
// scale is 0 or far larger than the elements.

// Vanished counts the elements of vanished blocks.
func Vanished(x, decoded []float32, block int) (n int64) {
	for len(x) > 0 {
		size := min(block, len(x))
		if isZero(decoded[:size]) && !isZero(x[:size]) {
			n += int64(size)
		}
		x, decoded = x[size:], decoded[size:]
	}
	return n
}

func isZero(x []float32) bool {
	for _, v := range x {
		if v != 0 {
			return false
		}
	}
	return true
}

// vanishedBlocks is Vanished for the blocks of a tile, in block order.
func (t Tile) vanishedBlocks(x, decoded []float32) (n int64) {
	for size := range t.lengths() {
		n += Vanished(x[:size], decoded[:size], int(size))
		x, decoded = x[size:], decoded[size:]
	}
	return n
}

// vanishedRanges counts elements of vanished blocks by ranges and scales: a block decodes to 0 if
// both ends of its range do. A block with a float zero point keeps at least its mean.
func (t Tile) vanishedRanges(b *Buffers, c Codec) (n int64) {
	if t.FloatZeros {
		return 0
	}
	ends := [][]float32{b.hi}
	if c.HasZeroPoints() {
		ends = append(ends, b.lo)
	}
	gone := buffer.Grow(&b.gone, t.scales)
	clear(gone)
	some := false
	codes, decoded := buffer.Grow(&b.endCodes, t.scales), buffer.Grow(&b.endValues, t.scales)
	for _, x := range ends {
		c.QuantizeColumns(codes, x, b.scale, b.zero)
		c.DecodeColumns(decoded, codes, b.scale, b.zero)
		for i, v := range decoded {
			switch {
			case v != 0:
				gone[i] = stays
			case x[i] != 0 && gone[i] != stays:
				gone[i], some = vanishes, true
			}
		}
	}
	if !some {
		return 0
	}
	i := 0
	for size := range t.lengths() {
		if gone[i] == vanishes {
			n += size
		}
		i++
	}
	return n
}

// States of a block in Buffers.gone. 0 means undecided.
const (
	vanishes = 1 + iota
	stays
)
