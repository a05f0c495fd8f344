package onnxq

import (
	"context"
	"encoding/binary"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/lazy"
)

// elementBytes is an upper bound of the memory of buffers for an element of a
// tile: as float32, in a file (float16 or a copy), coded, turned, packed and decoded. A
// float64 takes more; it is rare.
const elementBytes = 4 + 2 + 1 + 1 + 1 + 4

// buffers are what one worker needs. They grow to the size of a tile and are
// used again for the next one.
type buffers struct {
	ctx context.Context // of the work; may be nil

	raw     []byte    // bytes of a file
	x       []float32 // elements of a chunk
	decoded []float32 // what their codes stand for
	q       []byte    // codes, one a byte
	packed  []byte
	arena   lazy.Arena
	turned  []byte // codes or zero points in the order in which they are stored

	lo, hi, scale []float32 // of the tile's blocks
	zero          []byte
	turnedScale   []float32
	blocks        blockBuffers
}

// stopped returns why the work is to end, if it is. What takes long asks every few
// milliseconds.
func (b *buffers) stopped() error {
	if b.ctx == nil || b.ctx.Err() == nil {
		return nil
	}
	return context.Cause(b.ctx)
}

// prepare makes room for the blocks of a tile.
func (b *buffers) prepare(t tile) {
	clear(buffer.Grow(&b.lo, t.scales))
	clear(buffer.Grow(&b.hi, t.scales))
	buffer.Grow(&b.scale, t.scales)
	buffer.Grow(&b.zero, t.scales)
}

// load reads the elements of a chunk as float32. A float64 beyond its range
// becomes infinite.
func (b *buffers) load(t tile, c chunk) error {
	if err := b.stopped(); err != nil {
		return err
	}
	x := buffer.Grow(&b.x, c.rows*c.n)
	size := t.d.dtype.Bits() / 8
	raw := kernels.Bytes(x)
	if t.d.dtype != dtype.Float32 {
		raw = buffer.Grow(&b.raw, c.rows*c.n*size)
	}
	if err := t.src.ReadRows(raw, c.off*size, c.rows, c.n*size, t.inner*size); err != nil {
		return err
	}
	switch t.d.dtype {
	case dtype.Float32:
		kernels.FromFloat32(x)
	case dtype.Float16:
		kernels.FromFloat16(x, raw)
	case dtype.BFloat16:
		kernels.FromBFloat16(x, raw)
	case dtype.Float64:
		for i := range x {
			x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	}
	return nil
}

// storedCodes returns the codes of a chunk as they are stored.
func (b *buffers) storedCodes(t tile, c chunk) []byte {
	if t.offset {
		addHalf(b.q, t.bits())
	}
	return arrange(t.codesAt, &b.turned, b.q, c.rows, c.n)
}

// addHalf adds half their range to signed codes, which makes them unsigned.
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

// encodeScales returns scales of a tile as bytes of their type.
func (b *buffers) encodeScales(t tile, scales []float32) []byte {
	typ := t.scaleType()
	raw := buffer.Grow(&b.raw, typ.Bytes(t.scales))
	if typ.Bits() == 8 {
		scaleBytes(raw, typ, scales)
	} else {
		typ.Encode(raw, scales)
	}
	return raw
}

// observe widens the ranges of a tile's blocks by a chunk of it.
func (t tile) observe(b *buffers, c chunk) {
	if t.inner == 1 {
		t.codec.ObserveBlocks(b.lo, b.hi, b.x, int(min(c.n, t.k)), int(t.block))
		return
	}
	for s := range t.slabParts(b, c) {
		t.codec.ObserveColumns(s.lo, s.hi, s.x)
	}
}

// quantize codes a chunk and measures how far the codes are from it.
func (t tile) quantize(b *buffers, c chunk) (errors errstat.Stats) {
	buffer.Grow(&b.q, int64(len(b.x)))
	m, measures := t.codec.(measurer)
	if !measures {
		buffer.Grow(&b.decoded, int64(len(b.x)))
	}
	if t.inner == 1 {
		k, block := int(min(c.n, t.k)), int(t.block)
		if measures {
			return m.QuantizeBlocks(b.q, b.x, b.scale, b.zero, k, block)
		}
		t.codec.EncodeBlocks(b.q, b.x, b.scale, b.zero, k, block)
		t.codec.DecodeBlocks(b.decoded, b.q, b.scale, b.zero, k, block)
		errors.Add(b.x, b.decoded)
		return errors
	}
	for s := range t.slabParts(b, c) {
		if measures {
			errors.Merge(m.QuantizeColumns(s.q, s.x, s.scale, s.zero))
			continue
		}
		t.codec.EncodeColumns(s.q, s.x, s.scale, s.zero)
		t.codec.DecodeColumns(s.decoded, s.q, s.scale, s.zero)
		errors.Add(s.x, s.decoded)
	}
	return errors
}

// slabPart is the part of a worker's buffers that one slab takes.
type slabPart struct {
	x, decoded, lo, hi, scale []float32
	q, zero                   []byte
}

// slabParts cuts the buffers of a chunk whose blocks lie in columns into slabs.
func (t tile) slabParts(b *buffers, c chunk) func(yield func(slabPart) bool) {
	return func(yield func(slabPart) bool) {
		at := int64(0)
		for i := range t.slabs {
			n := int64(len(b.x)) // one slab, or a part of it
			if t.slabs > 1 {
				first, last := t.slabRows(t.slab + i)
				n = (last - first) * t.width
			}
			s := i * t.width
			p := slabPart{
				x: b.x[at : at+n], lo: b.lo[s : s+t.width], hi: b.hi[s : s+t.width],
				scale: b.scale[s : s+t.width], zero: b.zero[s : s+t.width],
			}
			if int64(len(b.q)) >= at+n {
				p.q = b.q[at : at+n]
			}
			if int64(len(b.decoded)) >= at+n {
				p.decoded = b.decoded[at : at+n]
			}
			if !yield(p) {
				return
			}
			at += n
		}
	}
}
