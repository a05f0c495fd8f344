package quantize

import (
	"iter"

	"onnxquant/internal/packing"
	"onnxquant/spec"
)

// Tile is the part of a weight that one worker quantizes at a time. It consists of whole blocks.
// Its elements fit into the worker's buffer. If blocks are too long for the buffer, the tile is
// read in several chunks.
//
// A weight is seen as [outer, k, inner], with blocks along k. If inner is 1, blocks lie in rows,
// and a tile is a contiguous run of blocks. Otherwise blocks lie in columns. A slab is then the
// rows of k that share scales, with all columns. A tile is either several slabs or width columns of
// them.
type Tile struct {
	*Weight

	off, n int64 // first element and their number, if contiguous; else n is 0
	slab   int64 // first slab, counted over all of outer
	slabs  int64 // number of slabs
	col    int64 // first column
	width  int64 // number of columns

	first, scales int64 // first scale and number of scales
}

// nearTile is a number of elements that stays in the CPU caches between two passes.
const nearTile = 1 << 19

// tiles cuts a weight into tiles of at most limit elements, or of one block if a block is longer.
func (w *Weight) tiles(limit int64) iter.Seq[Tile] {
	return func(yield func(Tile) bool) {
		switch {
		case w.Inner == 1 && w.wholeColumns(): // some encodings need a whole row
			w.rowTiles(max(min(limit, nearTile), w.K), 1, yield)
		case w.turned():
			w.rowTiles(max(turnedCodes*limit/w.K&^7*w.K, limit), 1, yield) // bytes of codes are not shared
		case w.transposedRows():
			w.rowTiles(limit, w.CodesAt.K, yield)
		case w.Inner == 1:
			w.rowTiles(min(limit, nearTile), 1, yield)
		case w.CodesAt.Transposed || w.wholeColumns():
			w.transposedTiles(limit, yield)
		case w.slabSize() <= limit:
			w.slabTiles(limit, yield)
		default:
			w.stripeTiles(limit, yield)
		}
	}
}

// slabSize is the number of elements of a full slab.
func (w *Weight) slabSize() int64 { return min(w.Block, w.K) * w.Inner }

// transposedRows reports whether blocks lie in rows but their codes are stored as columns.
func (w *Weight) transposedRows() bool { return w.Inner == 1 && w.CodesAt.Transposed }

// longestTurned is the length of the longest column that is read as a row: of longer ones, a tile would have few.
const longestTurned = 1 << 16

// ReadTurned lets a matrix [K,N] be read as [N,K], if its codes are simply rounded. All parts are stored as before.
func (w *Weight) ReadTurned() bool {
	n := w.Inner
	plain := w.Outer == 1 && w.Codec != nil && w.Algorithm == spec.RTN && w.search(w.Codec) == nil && w.Found == nil && w.Given == nil && !w.FloatZeros && len(w.Details) == 0
	if !plain || w.K > longestTurned || w.CodesAt != packing.InOrder(1, w.K, n) || w.ScalesAt != packing.InOrder(1, w.Blocks(), n) || w.ZerosAt != w.ScalesAt {
		return false
	}
	w.Outer, w.Inner = n, 1
	for _, at := range []*packing.Placement{&w.CodesAt, &w.ScalesAt, &w.ZerosAt} {
		*at = packing.Placement{Outer: 1, K: n, Inner: at.K, Transposed: true, Pitch: n}
	}
	return true
}

// turned reports whether codes and scales of a matrix are stored as columns, and blocks lie in rows.
func (w *Weight) turned() bool { return w.transposedRows() && w.ScalesAt.Transposed }

// rowTiles cuts a weight whose blocks lie in rows. If a row fits into limit, a tile has at least
// least rows.
func (w *Weight) rowTiles(limit, least int64, yield func(Tile) bool) {
	if w.K <= limit {
		rows := max(limit/w.K, least)
		for r := int64(0); r < w.Outer; r += rows {
			n := min(rows, w.Outer-r)
			if !yield(Tile{Weight: w, off: r * w.K, n: n * w.K, first: r * w.Blocks(), scales: n * w.Blocks()}) {
				return
			}
		}
		return
	}
	step := max(limit/w.Block, 1) * w.Block
	for r := range w.Outer {
		for at := int64(0); at < w.K; at += step {
			n := min(step, w.K-at)
			if !yield(Tile{Weight: w, off: r*w.K + at, n: n, first: r*w.Blocks() + at/w.Block, scales: (n-1)/w.Block + 1}) {
				return
			}
		}
	}
}

// slabTiles cuts a weight whose blocks lie in columns into runs of slabs.
func (w *Weight) slabTiles(limit int64, yield func(Tile) bool) {
	per := max(1, min(limit, nearTile)/w.slabSize())
	total := w.Outer * w.Blocks()
	for s := int64(0); s < total; s += per {
		n := min(per, total-s)
		first, _ := w.slabRows(s)
		_, last := w.slabRows(s + n - 1)
		t := Tile{Weight: w, off: first * w.Inner, n: (last - first) * w.Inner, slab: s, slabs: n, width: w.Inner, first: s * w.Inner, scales: n * w.Inner}
		if !yield(t) {
			return
		}
	}
}

// minStripe is the least width of a stripe. With shorter reads, system calls cost more than the
// reading.
const minStripe = 16 << 10

// stripeTiles cuts a weight whose slabs are large into stripes of columns.
func (w *Weight) stripeTiles(limit int64, yield func(Tile) bool) {
	least := int64(minStripe)
	if w.whole() {
		least = 1 // the whole tile must fit into memory
	}
	width := min(w.Inner, max(least, limit/min(w.Block, w.K)))
	for s := range w.Outer * w.Blocks() {
		for c := int64(0); c < w.Inner; c += width {
			n := min(width, w.Inner-c)
			if !yield(Tile{Weight: w, slab: s, slabs: 1, col: c, width: n, first: s*w.Inner + c, scales: n}) {
				return
			}
		}
	}
}

// leastWidth is the least number of columns of a transposed part. Shorter reads are slow.
const leastWidth = 128

// transposedTiles cuts a weight whose columns are stored or encoded as rows into stripes. The
// stripes span as many slabs as possible and are at least leastWidth wide.
func (w *Weight) transposedTiles(limit int64, yield func(Tile) bool) {
	slab := min(w.Block, w.K)
	width := min(w.Inner, max(leastWidth, limit/w.K))
	slabs := min(w.Blocks(), max(1, limit/(slab*width)))
	if w.wholeColumns() {
		slabs = w.Blocks() // some encodings need a whole column
	}
	for o := range w.Outer {
		for s := int64(0); s < w.Blocks(); s += slabs {
			high := min(slabs, w.Blocks()-s)
			for c := int64(0); c < w.Inner; c += width {
				n := min(width, w.Inner-c)
				first := o*w.Blocks() + s
				if !yield(Tile{Weight: w, slab: first, slabs: high, col: c, width: n, first: first*w.Inner + c, scales: high * n}) {
					return
				}
			}
		}
	}
}

// size is the number of elements.
func (t Tile) size() int64 {
	if t.n > 0 {
		return t.n
	}
	first, last := t.rows()
	return (last - first) * t.width
}

// scaleGrid returns the shape of a tile's scales: rows of n.
func (t Tile) scaleGrid() (rows, n int64) {
	switch blocks := t.Blocks(); {
	case t.turned() && t.n >= t.K:
		return t.scales / blocks, blocks
	case t.n > 0:
		return 1, t.scales
	}
	return t.slabs, t.width
}

// slabRows returns the rows that slab s covers, each of inner elements.
func (w *Weight) slabRows(s int64) (first, last int64) {
	o, b := s/w.Blocks(), s%w.Blocks()
	return o*w.K + b*w.Block, o*w.K + min((b+1)*w.Block, w.K)
}

// rows returns the rows that the slabs of a tile cover.
func (t Tile) rows() (first, last int64) {
	first, _ = t.slabRows(t.slab)
	_, last = t.slabRows(t.slab + t.slabs - 1)
	return first, last
}

// chunk is the part of a tile that is in memory at once: rows × n elements.
type chunk struct {
	off  int64 // of its first element, in the weight
	rows int64 // 1 if the elements are contiguous
	n    int64 // elements in a row
}

// cut returns how many of n elements to take at a time, at most limit. The result is a multiple of
// 8, which range searches in pieces of a block need, unless limit is less.
func cut(limit, n int64) int64 {
	if n <= limit || limit < 8 {
		return limit
	}
	return limit &^ 7
}

// chunks cuts a tile into parts of at most limit elements.
func (t Tile) chunks(limit int64) []chunk {
	switch {
	case t.whole(): // whole blocks are encoded
		limit = t.Elements()
	case t.turned() && t.n >= t.K: // whole rows
		var cs []chunk
		step := max(min(limit, nearTile)/t.K, 1) * t.K
		for at := int64(0); at < t.n; at += step {
			cs = append(cs, chunk{t.off + at, 1, min(step, t.n-at)})
		}
		return cs
	case t.size() > limit && !t.CodesAt.Transposed: // if transposed, larger chunks give longer writes
		limit = min(limit, nearTile)
	}
	if t.n > 0 {
		var cs []chunk
		step := cut(limit, t.n)
		if t.Inner == 1 && t.K < step {
			step -= step % t.K // whole rows
		}
		for at := int64(0); at < t.n; at += step {
			cs = append(cs, chunk{t.off + at, 1, min(step, t.n-at)})
		}
		return cs
	}
	first, last := t.rows()
	rows := cut(max(limit/t.width, 1), last-first)
	var cs []chunk
	for r := first; r < last; r += rows {
		cs = append(cs, chunk{r*t.Inner + t.col, min(rows, last-r), t.width})
	}
	return cs
}

// strips returns the parts of a tile whose codes are written at once. Usually these are its chunks.
//
// Contiguous rows whose codes are stored as columns are cut differently: a write is as long as the
// strip is high. So such strips span part of the width, and are read in bands.
func (t Tile) strips(limit int64) []chunk {
	if !t.across(limit) {
		return t.chunks(limit)
	}
	width, height := t.CodesAt.Inner, t.CodesAt.K
	n := min(width, limit)
	if !t.turned() {
		n = min(n, max(stripCodes*limit/height, leastWidth))
	}
	var cs []chunk
	for row, last := t.off/width, (t.off+t.n)/width; row < last; {
		rows := min(max(stripCodes*limit/n, 1), last-row, height-row%height)
		for col := int64(0); col < width; col += n {
			cs = append(cs, chunk{row*width + col, rows, min(n, width-col)})
		}
		row += rows
	}
	return cs
}

// A strip has at most stripCodes times as many codes as a chunk has elements. A band has at most
// 1/bandPart of a chunk. Gathered, transposed and packed codes take a byte each, so a strip and a
// band stay within the memory that ElementBytes allows for a chunk.
const (
	stripCodes = 3
	bandPart   = 4

	turnedCodes = 2 // the same as stripCodes for tiles of whole rows
)

// across reports whether strips differ from chunks.
func (t Tile) across(limit int64) bool {
	if t.turned() {
		return t.n > nearTile && t.n >= t.K
	}
	return t.transposedRows() && t.n > limit && !t.whole()
}

// bands cuts a strip into the parts that are read at once.
func (t Tile) bands(strip chunk, limit int64) []chunk {
	if !t.across(limit) {
		return []chunk{strip}
	}
	rows := max(limit/bandPart/strip.n, 1)
	var cs []chunk
	for r := int64(0); r < strip.rows; r += rows {
		cs = append(cs, chunk{strip.off + r*t.pitch(), min(rows, strip.rows-r), strip.n})
	}
	return cs
}

// pitch is the distance between rows of a chunk, in elements.
func (t Tile) pitch() int64 {
	if t.transposedRows() {
		return t.CodesAt.Inner
	}
	return t.Inner
}

// inRows is for blocks that lie in rows. It returns the first block of a chunk, counted from the
// tile's first block, and the chunk's number of elements per row.
func (t Tile) inRows(c chunk) (first, k int64) {
	if c.rows > 1 && t.K > t.CodesAt.Inner { // part of a matrix that is one block
		return 0, c.rows * c.n
	}
	return (c.off - t.off) / t.K * t.Blocks(), min(c.n, t.K)
}

// arranged cuts a chunk into parts for packing.Placement. If contiguous rows have codes that are
// stored transposed, a part is either whole rows of one matrix or a piece of a row.
func (t Tile) arranged(c chunk) iter.Seq[chunk] {
	return func(yield func(chunk) bool) {
		width, height := t.CodesAt.Inner, t.CodesAt.K
		if !t.transposedRows() || c.rows > 1 {
			yield(c)
			return
		}
		for off, end := c.off, c.off+c.n; off < end; {
			p := chunk{off, 1, min(width-off%width, end-off)}
			if rows := min(height-off/width%height, (end-off)/width); off%width == 0 && rows > 0 {
				p = chunk{off, rows, width}
			}
			if !yield(p) {
				return
			}
			off += p.rows * p.n
		}
	}
}
