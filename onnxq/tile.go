package onnxq

import "iter"

// tile is a part of a weight that one worker quantizes at a time: some blocks,
// whole, whose elements fill the worker's buffer at most once, or a single
// stripe of blocks that has to be read in several steps.
//
// A weight is seen as [outer, k, inner], with blocks along k. If inner is 1,
// blocks lie in rows: a tile is a stretch of elements made of whole blocks.
// Otherwise blocks lie in columns: a tile is some slabs of all columns, a slab
// being the rows of k that share scales, or the columns from col on of one
// slab, or of several, width of them.
type tile struct {
	*weight

	off, n int64 // elements, if they are contiguous
	slab   int64 // first slab, counted through outer
	slabs  int64
	col    int64 // first column
	width  int64 // columns

	first, scales int64 // first scale and their number
}

// tiles cuts a weight into tiles of at most limit elements, or of one block
// where that is more.
func (w *weight) tiles(limit int64) iter.Seq[tile] {
	return func(yield func(tile) bool) {
		switch {
		case w.inner == 1 && w.d.importance != nil: // rows are whole
			w.rowTiles(max(min(limit, nearTile), w.k), yield)
		case w.inner == 1:
			w.rowTiles(min(limit, nearTile), yield)
		case w.codesAt.turned || w.d.importance != nil:
			w.turnedTiles(limit, yield)
		case w.slabSize() <= limit:
			w.slabTiles(limit, yield)
		default:
			w.stripeTiles(limit, yield)
		}
	}
}

// slabSize is the number of elements of a full slab.
func (w *weight) slabSize() int64 { return min(w.block, w.k) * w.inner }

// rowTiles cuts a weight whose blocks lie in rows of k elements.
func (w *weight) rowTiles(limit int64, yield func(tile) bool) {
	if w.k <= limit {
		rows := limit / w.k
		for r := int64(0); r < w.outer; r += rows {
			n := min(rows, w.outer-r)
			if !yield(tile{weight: w, off: r * w.k, n: n * w.k, first: r * w.blocks, scales: n * w.blocks}) {
				return
			}
		}
		return
	}
	step := max(limit/w.block, 1) * w.block
	for r := range w.outer {
		for at := int64(0); at < w.k; at += step {
			n := min(step, w.k-at)
			if !yield(tile{weight: w, off: r*w.k + at, n: n, first: r*w.blocks + at/w.block, scales: (n-1)/w.block + 1}) {
				return
			}
		}
	}
}

// slabTiles cuts a weight whose blocks lie in columns into runs of slabs.
func (w *weight) slabTiles(limit int64, yield func(tile) bool) {
	per := max(1, min(limit, nearTile)/w.slabSize())
	total := w.outer * w.blocks
	for s := int64(0); s < total; s += per {
		n := min(per, total-s)
		first, _ := w.slabRows(s)
		_, last := w.slabRows(s + n - 1)
		t := tile{weight: w, off: first * w.inner, n: (last - first) * w.inner, slab: s, slabs: n, width: w.inner, first: s * w.inner, scales: n * w.inner}
		if !yield(t) {
			return
		}
	}
}

// minStripe keeps the pieces of a row that are read at once from becoming so small
// that calls of the system take longer than reading.
const minStripe = 16 << 10

// stripeTiles cuts a weight whose slabs are large into stripes of columns.
func (w *weight) stripeTiles(limit int64, yield func(tile) bool) {
	least := int64(minStripe)
	if w.encoding != nil {
		least = 1 // all of a tile is in memory at once
	}
	width := min(w.inner, max(least, limit/min(w.block, w.k)))
	for s := range w.outer * w.blocks {
		for c := int64(0); c < w.inner; c += width {
			n := min(width, w.inner-c)
			if !yield(tile{weight: w, slab: s, slabs: 1, col: c, width: n, first: s*w.inner + c, scales: n}) {
				return
			}
		}
	}
}

// turnedTiles cuts a weight whose columns are stored as rows, or encoded as such, into
// stripes that go through as many slabs as fit, if they can be wide enough for that.
func (w *weight) turnedTiles(limit int64, yield func(tile) bool) {
	const leastWidth = 128 // columns, for the sake of reading
	slab := min(w.block, w.k)
	width := min(w.inner, max(leastWidth, limit/w.k))
	slabs := min(w.blocks, max(1, limit/(slab*width)))
	if w.d.importance != nil {
		slabs = w.blocks // some encodings look at all of a column
	}
	for o := range w.outer {
		for s := int64(0); s < w.blocks; s += slabs {
			high := min(slabs, w.blocks-s)
			for c := int64(0); c < w.inner; c += width {
				n := min(width, w.inner-c)
				first := o*w.blocks + s
				if !yield(tile{weight: w, slab: first, slabs: high, col: c, width: n, first: first*w.inner + c, scales: high * n}) {
					return
				}
			}
		}
	}
}

// scaleGrid tells how a tile's scales lie: rows of n.
func (t tile) scaleGrid() (rows, n int64) {
	if t.n > 0 {
		return 1, t.scales
	}
	return t.slabs, t.width
}

// slabRows returns the rows, of inner elements each, that slab s covers.
func (w *weight) slabRows(s int64) (first, last int64) {
	o, b := s/w.blocks, s%w.blocks
	return o*w.k + b*w.block, o*w.k + min((b+1)*w.block, w.k)
}

// rows returns the rows that a stripe covers.
func (t tile) rows() (first, last int64) {
	first, _ = t.slabRows(t.slab)
	_, last = t.slabRows(t.slab + t.slabs - 1)
	return first, last
}

// chunk is a part of a tile that is in memory at once: rows × width elements,
// or n elements in a row.
type chunk struct {
	off  int64 // of the first element in the weight
	rows int64 // 1 where the elements are contiguous
	n    int64 // elements in a row
}

// cut returns how much of n to take at a time if limit is the most: a multiple of 8, for
// searches in pieces of a block, unless limit is less.
func cut(limit, n int64) int64 {
	if n <= limit || limit < 8 {
		return limit
	}
	return limit &^ 7
}

// chunks cuts a tile into parts of at most limit elements.
func (t tile) chunks(limit int64) []chunk {
	if t.encoding != nil { // blocks are made as a whole
		limit = t.codesAt.size()
	}
	if t.n > 0 {
		var cs []chunk
		step := cut(limit, t.n)
		for at := int64(0); at < t.n; at += step {
			cs = append(cs, chunk{t.off + at, 1, min(step, t.n-at)})
		}
		return cs
	}
	first, last := t.rows()
	rows := cut(max(limit/t.width, 1), last-first)
	var cs []chunk
	for r := first; r < last; r += rows {
		cs = append(cs, chunk{r*t.inner + t.col, min(rows, last-r), t.width})
	}
	return cs
}
