package quantize

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"

	"onnxquant/formats/errstat"
	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/packing"
	"onnxquant/internal/work"
)

// findScales reads a tile and computes the scales of its blocks. It reports whether all elements
// are finite. If the tile is one chunk, its elements stay in b.x.
func (t Tile) findScales(ctx context.Context, b *Buffers, c Codec, chunks []chunk) (finite bool, err error) {
	b.makeRoom(t)
	for _, part := range chunks {
		if err := b.load(ctx, t, part); err != nil {
			return true, err
		}
		t.observe(b, c, part)
	}
	finite = c.Scales(b.scale, b.zero, b.lo, b.hi)
	return finite, t.give(b)
}

// give overwrites scales and zero points with those of Given, if the weight has it.
func (t Tile) give(b *Buffers) error {
	if t.Given == nil {
		return nil
	}
	return t.Given(b.scale, b.zero, t.first)
}

// observe widens the ranges of a tile's blocks by the chunk in b.x.
func (t Tile) observe(b *Buffers, c Codec, part chunk) {
	if t.Inner == 1 {
		first, k := t.inRows(part)
		c.ObserveBlocks(b.lo[first:], b.hi[first:], b.x, int(k), int(t.Block))
		return
	}
	for s := range b.slabs(t) {
		c.ObserveColumns(s.lo, s.hi, s.x)
	}
}

// narrowScales runs after findScales. If the weight has a search for better ranges, narrowScales
// narrows the ranges and computes their scales.
func (t Tile) narrowScales(ctx context.Context, b *Buffers, c Codec, chunks []chunk) error {
	search := t.search(c)
	if search == nil {
		return nil
	}
	if err := t.narrow(ctx, b, search, chunks); err != nil {
		return err
	}
	c.Scales(b.scale, b.zero, b.lo, b.hi)
	return t.give(b)
}

// eachChunk calls do for each of some chunks, with its elements in b.x. only means that the tile is
// a single chunk and that b.x already holds it.
func (t Tile) eachChunk(ctx context.Context, b *Buffers, chunks []chunk, only bool, do func(chunk) error) error {
	for _, part := range chunks {
		var err error
		switch {
		case t.exact():
			err = work.Stopped(ctx)
			buffer.Grow(&b.x, part.rows*part.n)
		case !only:
			err = b.load(ctx, t, part)
		}
		if err != nil {
			return err
		}
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// encode sets b.codes to the codes of a chunk and returns their errors.
func (t Tile) encode(ctx context.Context, b *Buffers, c Codec, part chunk, state *shared) (errors errstat.Stats, err error) {
	buffer.Grow(&b.codes, int64(len(b.x)))
	switch fitter := t.fitter(c); {
	case t.Found != nil:
		if err = t.recall(b, part); err == nil {
			t.decode(b, c, part)
			if t.exact() {
				copy(b.x, b.decoded)
				b.loaded = Reading{}
			}
			err = t.measure(b, part, &errors)
		}
	case fitter != nil:
		if fit := t.method().fit; fit != nil {
			err = fit(t, ctx, b, c, part, fitter, state)
		} else {
			err = t.fitAll(ctx, b, part, fitter)
		}
		if err == nil {
			t.decode(b, c, part)
			err = t.measure(b, part, &errors)
		}
	case t.Inner == 1:
		first, k := t.inRows(part)
		errors = c.QuantizeBlocks(b.codes, b.x, b.scale[first:], b.zero[first:], int(k), int(t.Block))
		err = t.measureUnrounded(b, c, part, &errors)
	default:
		for s := range b.slabs(t) {
			errors.Merge(c.QuantizeColumns(s.codes, s.x, s.scale, s.zero))
		}
		err = t.measureUnrounded(b, c, part, &errors)
	}
	return errors, err
}

// measureUnrounded replaces the errors of a chunk by those against the elements before they were rounded, if that counts.
func (t Tile) measureUnrounded(b *Buffers, c Codec, part chunk, errors *errstat.Stats) error {
	if !t.roundingCounts(b.scale) {
		return nil
	}
	t.decode(b, c, part)
	*errors = errstat.Stats{}
	return t.measure(b, part, errors)
}

// measure adds the errors of the decoded codes of a chunk.
func (t Tile) measure(b *Buffers, part chunk, errors *errstat.Stats) error {
	x, err := b.original(t, part)
	if err == nil {
		errors.Add(x, b.decoded)
	}
	return err
}

// exact reports whether the elements are what codes decode to that were found before.
func (w *Weight) exact() bool { return w.Found != nil && w.Found.Exact }

// decode sets b.decoded to the decoded b.codes of a chunk.
func (t Tile) decode(b *Buffers, c Codec, part chunk) {
	buffer.Grow(&b.decoded, int64(len(b.x)))
	switch {
	case t.FloatZeros:
		t.decodeFloatZeros(b, c.(int4.Codec), part)
	case t.Inner == 1:
		first, k := t.inRows(part)
		c.DecodeBlocks(b.decoded, b.codes, b.scale[first:], b.zero[first:], int(k), int(t.Block))
	default:
		for s := range b.slabs(t) {
			c.DecodeColumns(s.decoded, s.codes, s.scale, s.zero)
		}
	}
	if t.Found != nil && t.Found.Mins != nil {
		t.subtractMins(b, part)
	}
}

// writeCodes writes the codes of a strip.
func (t Tile) writeCodes(b *Buffers, codes []byte, part chunk, to *sinks, out *Outcome) error {
	if to.codes == nil {
		return nil
	}
	if t.Offset {
		addHalf(codes, t.Bits)
	}
	for p := range t.arranged(part) {
		n := p.rows * p.n
		stored := packing.Arrange(t.CodesAt, &b.stored, codes[:n], p.rows, p.n)
		if err := to.codes.WriteRuns(&b.packed, stored, t.CodesAt.Runs(p.off, p.rows, p.n), &out.sum); err != nil {
			return err
		}
		codes = codes[n:]
	}
	return nil
}

// addHalf makes signed codes unsigned by adding half their range, 2^(bits-1).
func addHalf(q []byte, bits int) {
	const all = 0x0101010101010101
	top, mask := uint64(all<<(bits-1)), uint64(all*(1<<bits-1))
	for len(q) >= 8 {
		binary.LittleEndian.PutUint64(q, (binary.LittleEndian.Uint64(q)^top)&mask)
		q = q[8:]
	}
	for i := range q {
		q[i] = (q[i] ^ byte(top)) & byte(mask)
	}
}

// writeScales writes the scales and zero points of a tile, unless they are given.
func (t Tile) writeScales(b *Buffers, c Codec, to *sinks, out *Outcome) error {
	if t.Given != nil {
		return nil
	}
	out.Scale = kernels.AbsMax(out.Scale, b.scale)
	rows, n := t.scaleGrid()
	raw := buffer.Grow(&b.scaleBytes, t.ScaleType.Bytes(t.scales))
	encodeScales(raw, packing.Arrange(t.ScalesAt, &b.storedScale, b.scale, rows, n), t.ScaleType, c)
	out.sum = crc32.Update(out.sum, packing.Castagnoli, raw)
	if err := t.writeLikeScales(to.parts.Scales, raw); err != nil {
		return err
	}
	switch {
	case t.FloatZeros:
		t.ScaleType.Encode(raw, packing.Arrange(t.ScalesAt, &b.storedScale, b.floatZero, rows, n))
		out.sum = crc32.Update(out.sum, packing.Castagnoli, raw)
		return t.writeLikeScales(to.parts.Zeros, raw)
	case to.zeros == nil:
		return nil
	}
	if t.Offset {
		addHalf(b.zero, t.Bits)
	}
	stored := packing.Arrange(t.ZerosAt, &b.stored, b.zero, rows, n)
	return to.zeros.WriteRuns(&b.packed, stored, t.ZerosAt.Runs(t.first, rows, n), &out.sum)
}

// writeLikeScales writes an encoded array with one element per block.
func (t Tile) writeLikeScales(to io.WriterAt, raw []byte) error {
	rows, n := t.scaleGrid()
	size := int64(len(raw)) / t.scales
	for r := range t.ScalesAt.Runs(t.first, rows, n) {
		if _, err := to.WriteAt(raw[r.From*size:(r.From+r.N)*size], r.At*size); err != nil {
			return err
		}
	}
	return nil
}
