package quantize

import (
	"context"

	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/packing"
	"onnxquant/internal/work"
)

// narrow narrows the ranges of a tile's blocks by a search. If the tile is one chunk, it is in
// memory and its blocks are searched one by one. Otherwise all blocks are searched at once, and
// each pass of the search reads all chunks again.
func (t Tile) narrow(ctx context.Context, b *Buffers, s int4.Search, chunks []chunk) error {
	if len(chunks) == 1 {
		for i, x := range t.pieces(b, chunks[0]) {
			if err := work.Stopped(ctx); err != nil {
				return err
			}
			s.Reset(b.lo[i:i+1], b.hi[i:i+1])
			for s.Next() {
				s.Piece(0, x)
			}
		}
		return nil
	}
	s.Reset(b.lo, b.hi)
	for s.Next() {
		for _, c := range chunks {
			if err := b.load(ctx, t, c); err != nil {
				return err
			}
			for i, x := range t.pieces(b, c) {
				s.Piece(i, x)
			}
		}
	}
	return nil
}

// pieces yields the elements of each block in a chunk, with the block's number in the tile.
func (t Tile) pieces(b *Buffers, c chunk) func(yield func(int, []float32) bool) {
	return func(yield func(int, []float32) bool) {
		if t.Inner == 1 {
			k, block := min(c.n, t.K), t.Block
			i := 0
			for row := int64(0); row < int64(len(b.x)); row += k {
				for at := int64(0); at < k; at += block {
					if !yield(i, b.x[row+at:row+min(at+block, k)]) {
						return
					}
					i++
				}
			}
			return
		}
		first := 0
		for s := range b.slabs(t) {
			columns := len(s.hi)
			rows := len(s.x) / columns
			transposed := buffer.Grow(&b.column, int64(len(s.x)))
			packing.Transpose(transposed, s.x, rows, columns)
			for i := range columns {
				if !yield(first+i, transposed[i*rows:(i+1)*rows]) {
					return
				}
			}
			first += columns
		}
	}
}
