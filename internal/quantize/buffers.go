package quantize

import (
	"cmp"
	"context"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/work"
)

// ElementBytes bounds the memory of Buffers per element of a tile: float32, code, reordered code,
// packed code, decoded value, and a share for the scales of blocks. Algorithms that need whole
// blocks get tiles of half the size, because they also transpose columns. float64 models are rare
// and take more.
const ElementBytes = 4 + 1 + 1 + 1 + 4 + 2

// Buffers are the buffers of one worker, reused from tile to tile. They grow as needed.
type Buffers struct {
	raw        []byte    // elements as read from the file, if they are longer than float32
	x          []float32 // elements of a chunk
	loaded     Reading   // the elements in x; zero if unknown
	away       int64     // elements that became 0 when they were rounded, where original has read them again
	decoded    []float32 // decoded codes of a chunk
	column     []float32 // elements of some columns, column by column
	codes      []byte    // one per byte
	transposed []byte    // codes of some columns, column by column
	gathered   []byte    // codes of a strip that is read in several bands
	stored     []byte    // codes or zero points in stored order, one per byte
	packed     []byte    // the same, packed

	lo, hi, scale []float32 // range and scale of each block of the tile
	zero          []byte    // zero point of each block …
	floatZero     []float32 // … or float zero point, counted from the least code
	mins          []float32 // what is subtracted from each block, if Found has mins
	storedScale   []float32 // scales in stored order
	scaleBytes    []byte    // the same, encoded

	endCodes  []byte    // codes of the ends of ranges
	endValues []float32 // the same, decoded
	gone      []byte    // by block: 0, vanishes or stays

	blocks blockBuffers
}

// makeRoom resizes the buffers of ranges, scales and zero points for the blocks of a tile.
func (b *Buffers) makeRoom(t Tile) {
	clear(buffer.Grow(&b.lo, t.scales))
	clear(buffer.Grow(&b.hi, t.scales))
	buffer.Grow(&b.scale, t.scales)
	buffer.Grow(&b.zero, t.scales)
	if t.FloatZeros {
		buffer.Grow(&b.floatZero, t.scales)
	}
}

// load sets x to the elements of a chunk. It does not read elements that x already holds. A float64
// beyond the range of float32 becomes infinite.
func (b *Buffers) load(ctx context.Context, t Tile, c chunk) error {
	if err := work.Stopped(ctx); err != nil {
		return err
	}
	x := buffer.Grow(&b.x, c.rows*c.n)
	if want := t.reading(c); b.loaded != want {
		b.loaded = Reading{}
		if err := b.read(x, t, c); err != nil {
			return err
		}
		b.loaded = want
	}
	if t.Rounded != nil {
		t.Rounded.Round(x)
		b.loaded = Reading{}
	}
	return nil
}

// read reads the elements of a chunk as float32.
func (b *Buffers) read(x []float32, t Tile, c chunk) error {
	from, typ := t.origin()
	size := typ.Bits() / 8
	raw := kernels.Bytes(x)
	if size > 4 {
		raw = buffer.Grow(&b.raw, c.rows*c.n*size)
	} else {
		raw = raw[int64(len(raw))-c.rows*c.n*size:] // at the end of x, for decoding in place: less memory to cache
	}
	if err := from.ReadRows(raw, c.off*size, c.rows, c.n*size, t.pitch()*size); err != nil {
		return err
	}
	typ.Decode(x, raw)
	return nil
}

// original sets x to the elements that errors are measured against: those before they were rounded, unless errors of codes hide
// those of rounding. They are read again: to keep them takes much memory.
func (b *Buffers) original(t Tile, c chunk) (x []float32, err error) {
	if want := t.reading(c); b.loaded != want && t.roundingCounts(b.scale) {
		if err := b.read(b.x, t, c); err != nil {
			return nil, err
		}
		b.loaded = want
		b.away += t.Rounded.away(b.x)
	}
	return b.x, nil
}

// hidden is the least scale of codes whose errors hide those of elements that become float16: at most 2^-25, or 2^-12 of the element.
const hidden = 0x1p-20

// roundingCounts reports whether elements have errors of rounding that count beside those of codes with the scales of a tile.
func (t Tile) roundingCounts(scales []float32) bool {
	if t.Rounded == nil || t.exact() {
		return false
	}
	return t.DType != dtype.Float16 || slices.ContainsFunc(scales[:min(int64(len(scales)), t.scales)], func(s float32) bool { return -hidden < s && s < hidden })
}

// away counts the elements that become 0 when they are rounded.
func (r *Rounded) away(x []float32) (n int64) {
	var rounded [1 << 12]float32
	for part := range slices.Chunk(x, len(rounded)) {
		r.Round(rounded[:copy(rounded[:], part)])
		for i, v := range part {
			if v != 0 && rounded[i] == 0 {
				n++
			}
		}
	}
	return n
}

// Reading identifies one read of elements.
type Reading struct {
	from  Source
	part  chunk
	pitch int64
}

func (t Tile) reading(c chunk) Reading {
	from, _ := t.origin()
	return Reading{from, c, t.pitch()}
}

// Reading returns the read of a tile, or the zero Reading if the tile takes several reads. A worker
// whose last tile had an equal Reading does not read again.
func (r *Run) Reading(tile int) Reading {
	t := r.Tiles[tile]
	chunks := t.chunks(r.limit)
	if len(chunks) > 1 {
		return Reading{}
	}
	return t.reading(chunks[0])
}

// Compare orders readings by position in the source.
func (r Reading) Compare(s Reading) int {
	return cmp.Or(cmp.Compare(r.part.off, s.part.off), cmp.Compare(r.part.rows, s.part.rows), cmp.Compare(r.part.n, s.part.n), cmp.Compare(r.pitch, s.pitch))
}

// slab is the part of the buffers for one slab of a tile.
type slab struct {
	x, decoded, lo, hi, scale []float32
	codes, zero               []byte
}

// slabs yields the parts of the buffers for each slab of a chunk, if blocks lie in columns.
func (b *Buffers) slabs(t Tile) func(yield func(slab) bool) {
	return func(yield func(slab) bool) {
		at := int64(0)
		for i := range t.slabs {
			n := int64(len(b.x)) // one slab, or a part of it
			if t.slabs > 1 {
				first, last := t.slabRows(t.slab + i)
				n = (last - first) * t.width
			}
			s := i * t.width
			p := slab{
				x: b.x[at : at+n], lo: b.lo[s : s+t.width], hi: b.hi[s : s+t.width],
				scale: b.scale[s : s+t.width], zero: b.zero[s : s+t.width],
			}
			if int64(len(b.codes)) >= at+n {
				p.codes = b.codes[at : at+n]
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
