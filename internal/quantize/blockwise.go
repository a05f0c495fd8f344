package quantize

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"iter"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/packing"
	"onnxquant/internal/shapes"
	"onnxquant/internal/work"
)

// blockBuffers are the buffers for blockwise formats. In block order, the blocks of a tile
// follow one another, row by row or column by column.
type blockBuffers struct {
	x          []float32 // elements in block order
	padded     []float32 // the same, short blocks padded with zeros
	decoded    []float32 // decoded elements, in block order
	importance []float32 // importance of the elements of a row, padded
	packed     []byte    // encoded blocks
	parts      ggml.Parts
	coarse     Coarse

	inOrder      []float32 // per-block values in element order
	codesInOrder []byte
	mins         []byte // encoded as stored
}

// lengths yields the number of elements of each block of a tile.
func (t Tile) lengths() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i := range t.scales {
			b := t.first + i
			switch {
			case t.Inner > 1 && t.encodedColumns():
				b = i // the tile has whole columns
			case t.Inner > 1:
				b = t.slab + i/t.width
			}
			if !yield(min(t.Block, t.K-b%t.Blocks()*t.Block)) {
				return
			}
		}
	}
}

// makeBlocks reads a tile and encodes its blocks. It returns the elements and the decoded elements,
// both in block order. Both are nil if an element or scale is not finite.
func (b *Buffers) makeBlocks(ctx context.Context, t Tile) (x, decoded []float32, err error) {
	if err := b.load(ctx, t, t.chunks(0)[0]); err != nil || !kernels.IsFinite(kernels.AbsMax(0, b.x)) {
		return nil, nil, err
	}
	return b.encodeBlocks(ctx, t)
}

// originalBlocks is original in block order. It may overwrite x, the rounded elements in block order.
func (b *Buffers) originalBlocks(t Tile, x []float32) ([]float32, error) {
	from, err := b.original(t, t.chunks(0)[0])
	if err == nil && t.Inner > 1 && b.loaded == t.reading(t.chunks(0)[0]) && t.Rounded != nil {
		t.eachSlab(func(at, rows int64) { packing.Transpose(x[at:], from[at:], int(rows), int(t.width)) })
	}
	return x, err
}

// encodeBlocks encodes the loaded elements in blocks and splits the blocks into parts. b.codes and
// b.scale then hold codes and scales in element order.
func (b *Buffers) encodeBlocks(ctx context.Context, t Tile) (x, decoded []float32, err error) {
	s, e := &b.blocks, t.Encoding
	f := e.Form
	block, part := t.Block, int64(f.Part)
	n := t.scales * block
	x = b.x
	if t.Inner > 1 {
		x = buffer.Grow(&s.x, int64(len(b.x)))
		t.eachSlab(func(at, rows int64) { packing.Transpose(x[at:], b.x[at:], int(rows), int(t.width)) })
	}
	padded := pad(&s.padded, x, t, block)
	columns := n // one row of blocks
	var importance []float32
	if t.Importance != nil {
		columns = t.Blocks() * block
		importance = buffer.Grow(&s.importance, columns)
		clear(importance[copy(importance, t.Importance):])
	}
	packed := buffer.Grow(&s.packed, t.scales*int64(e.Bytes))
	if t.Found != nil {
		err = t.recallBlocks(packed)
	} else {
		err = EncodeRows(ctx, e, packed, padded, int(columns), importance)
	}
	if err != nil {
		return nil, nil, err
	}
	p := &s.parts
	growParts(p, e, t.scales)
	f.Split(*p, s.packed)
	if !kernels.IsFinite(kernels.AbsMax(kernels.AbsMax(0, p.Scales), p.Mins)) {
		return nil, nil, nil
	}
	b.scale = append(b.scale[:0], inOrder(t, &s.inOrder, p.Scales, block)...)

	decoded = buffer.Grow(&s.decoded, n)
	if err := e.Dequantize(decoded, s.packed, int(n), 1); err != nil {
		return nil, nil, err
	}
	decoded = trim(decoded, t, block, 1)
	t.DType.RoundAll(decoded)

	codes := trim(p.Codes, t, block, 1)
	p.PartScales, p.PartMins = trim(p.PartScales, t, block/part, part), trim(p.PartMins, t, block/part, part)
	b.codes = append(b.codes[:0], inOrder(t, &s.codesInOrder, codes, 1)...)
	return x, decoded, nil
}

// growParts makes room for the parts of some blocks.
func growParts(p *ggml.Parts, e *ggml.Encoding, blocks int64) {
	n := blocks * int64(e.Elements)
	buffer.Grow(&p.Codes, n)
	buffer.Grow(&p.Scales, blocks)
	buffer.Grow(&p.Mins, blocks)
	clear(p.Mins)
	buffer.Grow(&p.PartScales, n/int64(e.Form.Part))
	buffer.Grow(&p.PartMins, n/int64(e.Form.Part))
}

// inOrder reorders values from block order to element order. Each value belongs to part elements of
// a block.
func inOrder[T any](t Tile, buf *[]T, x []T, part int64) []T {
	if t.Inner == 1 {
		return x
	}
	ordered, at := buffer.Grow(buf, int64(len(x))), int64(0)
	t.eachSlab(func(_, rows int64) {
		n := shapes.DivideUp(rows, part)
		packing.Transpose(ordered[at:], x[at:], int(t.width), int(n))
		at += n * t.width
	})
	return ordered
}

// eachSlab calls do with the first element and the number of rows of each slab of a tile. If whole
// columns are encoded, the tile counts as one slab.
func (t Tile) eachSlab(do func(at, rows int64)) {
	if t.encodedColumns() {
		do(0, t.K)
		return
	}
	at := int64(0)
	for i := range t.slabs {
		first, last := t.slabRows(t.slab + i)
		do(at, last-first)
		at += (last - first) * t.width
	}
}

// pad pads blocks to n elements with zeros.
func pad(buf *[]float32, x []float32, t Tile, n int64) []float32 {
	if int64(len(x)) == t.scales*n {
		return x
	}
	padded := buffer.Grow(buf, t.scales*n)
	clear(padded)
	to := padded
	for length := range t.lengths() {
		copy(to, x[:length])
		x, to = x[length:], to[n:]
	}
	return padded
}

// trim undoes pad in place. Each value belongs to part elements.
func trim[T any](padded []T, t Tile, n, part int64) []T {
	to, from := int64(0), int64(0)
	for length := range t.lengths() {
		count := shapes.DivideUp(length, part)
		if to < from {
			copy(padded[to:], padded[from:from+count])
		}
		to, from = to+count, from+n
	}
	return padded[:to]
}

// writeDetails writes the further tensors of a blockwise format.
func (t Tile) writeDetails(b *Buffers, to *sinks, out *Outcome) error {
	for i, d := range t.Details {
		raw := b.detail(t, d)
		out.sum = crc32.Update(out.sum, packing.Castagnoli, raw)
		for r := range t.detailRuns(d) {
			if _, err := to.parts.Details[i].WriteAt(raw[r.From*d.size():(r.From+r.N)*d.size()], r.At*d.size()); err != nil {
				return err
			}
		}
	}
	return nil
}

// sumDetails adds the details read from a file to a checksum, as writeDetails did.
func (t Tile) sumDetails(b *Buffers, sum uint32, from []io.ReaderAt) (uint32, error) {
	for i, d := range t.Details {
		for r := range t.detailRuns(d) {
			raw := buffer.Grow(&b.raw, r.N*d.size())
			if err := buffer.ReadFull(from[i], raw, r.At*d.size()); err != nil {
				return 0, err
			}
			sum = crc32.Update(sum, packing.Castagnoli, raw)
		}
	}
	return sum, nil
}

// detail returns a detail of a tile, encoded as stored.
func (b *Buffers) detail(t Tile, d Detail) []byte {
	s := &b.blocks
	switch d.Kind {
	case PartScales:
		return inOrder(t, &s.codesInOrder, s.parts.PartScales, d.Part)
	case PartMins:
		return inOrder(t, &s.codesInOrder, s.parts.PartMins, d.Part)
	}
	raw := buffer.Grow(&s.mins, 2*t.scales)[:0]
	for _, v := range inOrder(t, &s.inOrder, s.parts.Mins, d.Part) {
		raw = binary.LittleEndian.AppendUint16(raw, dtype.Float16Bits(v))
	}
	return raw
}

// detailRuns yields the places of a tile's detail in its tensor.
func (t Tile) detailRuns(d Detail) iter.Seq[packing.Run] {
	per := t.Block / d.Part
	if t.Inner == 1 {
		first := t.first/t.Blocks()*d.At.K + t.first%t.Blocks()*per
		n := int64(0)
		for length := range t.lengths() {
			n += shapes.DivideUp(length, d.Part)
		}
		return d.At.Runs(first, 1, n)
	}
	rows := int64(0)
	t.eachSlab(func(_, n int64) { rows += shapes.DivideUp(n, d.Part) })
	first := t.slab/t.Blocks()*d.At.K + t.slab%t.Blocks()*per
	return d.At.Runs(first*t.Inner+t.col, rows, t.width)
}

// EncodeRows encodes rows of columns elements like e.Quantize, a few rows at a time so that ctx can
// stop it. Without importance the length of rows does not matter.
func EncodeRows(ctx context.Context, e *ggml.Encoding, dst []byte, x []float32, columns int, importance []float32) error {
	const some = 1 << 16 // elements
	if importance == nil {
		columns = max(some/e.Elements, 1) * e.Elements
	}
	step := max(some/columns, 1) * columns
	for at := 0; at < len(x); at += step {
		if err := work.Stopped(ctx); err != nil {
			return err
		}
		x := x[at:min(at+step, len(x))]
		from, size := at/e.Elements*e.Bytes, len(x)/e.Elements*e.Bytes
		if err := e.Quantize(dst[from:from+size], x, min(columns, len(x)), importance, 1); err != nil {
			return err
		}
	}
	return nil
}
