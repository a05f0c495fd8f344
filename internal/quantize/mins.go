package quantize

import (
	"hash/crc32"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/shapes"
)

// Codes that were found elsewhere may have mins: float32 numbers that are subtracted from the decoded elements, one for each block.
// They are stored like scales.

// subtractMins subtracts the mins from the decoded elements of a chunk.
func (t Tile) subtractMins(b *Buffers, part chunk) {
	if t.Inner == 1 {
		first, k := t.inRows(part)
		blocks, mins := shapes.DivideUp(k, t.Block), b.mins[first:]
		for at := int64(0); at < int64(len(b.decoded)); at += k {
			for block := range blocks {
				subtract(b.decoded[at+block*t.Block:at+min((block+1)*t.Block, k)], mins[at/k*blocks+block])
			}
		}
		return
	}
	mins := b.mins
	for s := range b.slabs(t) {
		n := len(s.scale)
		for row := s.decoded; len(row) > 0; row = row[n:] {
			for i := range n {
				row[i] -= mins[i]
			}
		}
		mins = mins[n:]
	}
}

func subtract(x []float32, least float32) {
	for i := range x {
		x[i] -= least
	}
}

// writeMins writes the mins of a tile.
func (t Tile) writeMins(b *Buffers, to *sinks, out *Outcome) error {
	if t.Found == nil || t.Found.Mins == nil {
		return nil
	}
	rows, n := t.scaleGrid()
	raw := buffer.Grow(&b.scaleBytes, 4*t.scales)
	dtype.Float32.Encode(raw, packing.Arrange(t.ScalesAt, &b.storedScale, b.mins, rows, n))
	out.sum = crc32.Update(out.sum, packing.Castagnoli, raw)
	return t.writeLikeScales(to.parts.Mins, raw)
}

// sumMins adds mins that writeMins wrote to a checksum.
func (t Tile) sumMins(b *Buffers, sum uint32, from io.ReaderAt) (uint32, error) {
	if t.Found == nil || t.Found.Mins == nil {
		return sum, nil
	}
	return t.sumArray(b, sum, from, 4)
}
