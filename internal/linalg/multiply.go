package linalg

import (
	"context"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/work"
)

// The part of a product that one worker computes at a time. depth is how many products are
// added up before the sum is added to the result.
const (
	height = 40 * kernels.TileRows
	width  = 32 * kernels.TileColumns
	depth  = 256

	shallow = 32 // products of so many numbers take less time than their sums to be written, which is then done row by row
)

// Multiplier adds products of matrices to other matrices. It owns its buffers and is not for
// concurrent use.
type Multiplier struct {
	left, right, edge, repeated []float32
	begin                       begin
}

// begin is what a product is added to, if not to what is there. start may have no numbers, which are 0 then. last is added to
// each row in the end.
type begin struct {
	fresh bool
	start Matrix
	last  []float32
}

// at is that of the part that begins at (i, j), for n of all products from k on.
func (b begin) at(i, j, k, n, all int) begin {
	if len(b.last) > 0 {
		b.last = b.last[j:]
		if k == 0 && n == all { // the same sum, without reading it again
			return begin{true, Matrix{Data: b.last, Column: 1}, nil}
		}
		if k+n < all {
			b.last = nil
		}
	}
	if b.fresh = b.fresh && k == 0; b.fresh && len(b.start.Data) > 0 {
		b.start.Data = b.start.Data[i*b.start.Row+j*b.start.Column:]
	}
	return b
}

// finish adds what is added last to a row of sums from column j on.
func (b begin) finish(sums []float32, j int) {
	if len(b.last) > 0 {
		kernels.Add(sums, sums, b.last[j:][:len(sums)])
	}
}

// set sets the elements of a matrix whose first one is (i, j).
func (b begin) set(c Matrix, i, j int) {
	if !b.fresh {
		return
	}
	from := b.start
	for r := range c.Rows {
		row := c.row(r)
		at := (i+r)*from.Row + j*from.Column
		switch {
		case len(from.Data) == 0:
			clear(row)
		case from.Column == 1:
			copy(row, from.Data[at:])
		default:
			for k := range row {
				row[k] = from.Data[at]
				at += from.Column
			}
		}
	}
}

// Add adds factor·a·b to c, whose rows are contiguous.
func (m *Multiplier) Add(c Matrix, factor float32, a, b Matrix) {
	for i := 0; i < c.Rows; i += height {
		for j := 0; j < c.Columns; j += width {
			m.addPart(c, factor, a, b, i, j, false)
		}
	}
}

// Add adds factor·a·b to c, whose rows are contiguous, on several workers. A worker packs a part of b once for some parts of a.
func Add(ctx context.Context, workers int, c Matrix, factor float32, a, b Matrix) error {
	if c.Rows == 0 || c.Columns == 0 {
		return nil
	}
	across := (c.Columns-1)/width + 1
	tall := height * min(4, max(1, c.Rows*across/height/workers)) // there is a part for each worker
	return work.Each(ctx, workers, across*((c.Rows-1)/tall+1), func(_ context.Context, m *Multiplier, part int) error {
		i, j := part/across*tall, part%across*width
		rows, columns := min(tall, c.Rows-i), min(width, c.Columns-j)
		for k := 0; k < a.Columns; k += depth {
			n := min(depth, a.Columns-k)
			m.packRight(b.Part(k, j, n, columns))
			for y := 0; y < rows; y += height {
				some := min(height, rows-y)
				m.packLeft(a.Part(i+y, k, some, n), factor)
				m.addTiles(c.Part(i+y, j, some, columns), n, false, 0, begin{})
			}
		}
		return nil
	})
}

// AddLower is Add for a symmetric product. It changes the diagonal of c and the elements below.
func AddLower(ctx context.Context, workers int, c Matrix, factor float32, a, b Matrix) error {
	var parts [][2]int
	for i := 0; i < c.Rows; i += height {
		for j := 0; j < c.Columns && j <= i+height; j += width {
			parts = append(parts, [2]int{i, j})
		}
	}
	return work.Each(ctx, workers, len(parts), func(_ context.Context, m *Multiplier, i int) error {
		m.addPart(c, factor, a, b, parts[i][0], parts[i][1], true)
		return nil
	})
}

// addPart adds to the part of c that begins at (i, j).
func (m *Multiplier) addPart(c Matrix, factor float32, a, b Matrix, i, j int, lower bool) {
	rows, columns := min(height, c.Rows-i), min(width, c.Columns-j)
	for k := 0; k < a.Columns; k += depth {
		n := min(depth, a.Columns-k)
		m.packLeft(a.Part(i, k, rows, n), factor)
		m.packRight(b.Part(k, j, n, columns))
		m.addTiles(c.Part(i, j, rows, columns), n, lower, j-i, m.begin.at(i, j, k, n, a.Columns))
	}
}

// packLeft packs rows of a left operand.
func (m *Multiplier) packLeft(a Matrix, factor float32) {
	pack(buffer.Grow(&m.left, int64(up(a.Rows, kernels.TileRows)*a.Columns)), a.T(), kernels.TileRows, factor)
}

// packRight packs columns of a right operand.
func (m *Multiplier) packRight(b Matrix) {
	pack(buffer.Grow(&m.right, int64(up(b.Columns, kernels.TileColumns)*b.Rows)), b, kernels.TileColumns, 1)
}

// addTiles adds the product of the packed operands, of n columns and rows, to c. With lower it leaves out elements
// above a diagonal; shift is how many columns c begins behind its row.
func (m *Multiplier) addTiles(c Matrix, n int, lower bool, shift int, from begin) {
	t := tiles{c: c, n: n, lower: lower, shift: shift, from: from}
	m.other(&t)
	if n <= shallow {
		for x := 0; x < c.Rows; x += kernels.TileRows {
			for y := 0; y < c.Columns; y += kernels.TileColumns {
				m.addTile(&t, x, y, m.right[y*n:][:kernels.TileColumns*n])
			}
		}
		return
	}
	for y := 0; y < c.Columns; y += kernels.TileColumns {
		for x := 0; x < c.Rows; x += kernels.TileRows {
			m.addTile(&t, x, y, m.right[y*n:][:kernels.TileColumns*n])
		}
	}
}

// tiles is a sum of packed operands, and what it is added to: the elements of other, for a whole tile.
type tiles struct {
	c, other Matrix
	n        int
	lower    bool
	shift    int
	from     begin
}

// zeros are a row of a tile.
var zeros [kernels.TileColumns]float32

// other finds what whole tiles are added to.
func (m *Multiplier) other(t *tiles) {
	start := t.from.start
	switch {
	case !t.from.fresh:
		t.other = t.c
	case len(start.Data) == 0:
		t.other = Matrix{Data: zeros[:]}
	case start.Column == 1:
		t.other = start
	default: // numbers that are repeated along the rows
		repeated := buffer.Grow(&m.repeated, int64(t.c.Rows*kernels.TileColumns))
		for i := range t.c.Rows {
			for j := range kernels.TileColumns {
				repeated[i*kernels.TileColumns+j] = start.Data[i*start.Row]
			}
		}
		t.other = Matrix{Data: repeated, Row: kernels.TileColumns}
	}
}

// addTile adds the packed rows of the left operand times packed columns to the tile at (x, y), which may be smaller than a tile.
func (m *Multiplier) addTile(t *tiles, x, y int, right []float32) {
	last := kernels.TileColumns - 1 // column of the tile that its first row has; each row has a column more
	if t.lower {
		if last = x - t.shift - y; last <= -kernels.TileRows {
			return
		}
	}
	rows, columns := min(kernels.TileRows, t.c.Rows-x), min(kernels.TileColumns, t.c.Columns-y)
	c, left := t.c.Data[x*t.c.Row+y:], m.left[x*t.n:][:kernels.TileRows*t.n]
	if rows == kernels.TileRows && columns == kernels.TileColumns && last >= kernels.TileColumns-1 {
		kernels.MultiplyTile(c, t.c.Row, t.other.Data[x*t.other.Row+y*t.other.Column:], t.other.Row, left, right)
	} else {
		t.from.set(t.c.Part(x, y, rows, columns), x, y)
		edge := buffer.Grow(&m.edge, kernels.TileRows*kernels.TileColumns)
		kernels.MultiplyTile(edge, kernels.TileColumns, zeros[:], 0, left, right)
		for i := range rows {
			row := c[i*t.c.Row:][:max(min(columns, last+i+1), 0)]
			for j := range row {
				row[j] += edge[i*kernels.TileColumns+j]
			}
		}
	}
	if len(t.from.last) > 0 {
		for i := range rows {
			t.from.finish(c[i*t.c.Row:][:columns], y)
		}
	}
}

// pack puts the columns of a matrix, times a factor, side by side in groups of n, row by row. It pads
// the last group with zeros.
func pack(dst []float32, m Matrix, n int, factor float32) {
	whole := m.Columns / n * n // columns of whole groups
	switch {
	case whole == 0:
	case m.Column == 1 && n == kernels.TileColumns:
		packWide(dst, m.Part(0, 0, m.Rows, whole), factor)
	case m.Column == 1 && n == kernels.TileRows:
		packNarrow(dst, m.Part(0, 0, m.Rows, whole), factor)
	default:
		for j := 0; j < whole; j += n {
			groups := dst[j*m.Rows:][:m.Rows*n]
			switch {
			case m.Row == 1 && n == kernels.TileRows:
				packRows(groups, m.Data[j*m.Column:], m.Column, factor)
			case m.Row == 1 && n == kernels.TileColumns:
				packRowsWide(groups, m.Data[j*m.Column:], m.Column, factor)
			default:
				packGroup(groups, m.Part(0, j, m.Rows, n), n, factor)
			}
		}
	}
	if whole < m.Columns {
		groups := dst[whole*m.Rows:][:m.Rows*n]
		clear(groups)
		packGroup(groups, m.Part(0, whole, m.Rows, m.Columns-whole), n, factor)
	}
}

// packGroup packs at most n columns.
func packGroup(dst []float32, m Matrix, n int, factor float32) {
	for k := range m.Columns {
		at := k * m.Column
		for i := k; i < len(dst); i += n {
			dst[i] = m.Data[at] * factor
			at += m.Row
		}
	}
}

// packWide packs groups of TileColumns columns of a matrix whose rows are contiguous. It goes along the rows: parts of
// many rows, a power of two apart, would share few lines of the caches.
func packWide(dst []float32, m Matrix, factor float32) {
	const n = kernels.TileColumns
	for i := range m.Rows {
		at := i * n
		for row := m.row(i); len(row) >= n; row = row[n:] {
			group := (*[n]float32)(dst[at:])
			*group = *(*[n]float32)(row)
			if factor != 1 {
				for i := range group {
					group[i] *= factor
				}
			}
			at += m.Rows * n
		}
	}
}

// packNarrow packs groups of TileRows columns of a matrix whose rows are contiguous. It goes along parts of rows: groups
// that are packed at once stay in the first cache.
func packNarrow(dst []float32, m Matrix, factor float32) {
	const n, most = kernels.TileRows, 8 * kernels.TileRows
	for j := 0; j < m.Columns; j += most {
		columns := min(most, m.Columns-j)
		for i := range m.Rows {
			at := j*m.Rows + i*n
			for row := m.Data[i*m.Row+j:][:columns]; len(row) >= n; row = row[n:] {
				to, from := (*[n]float32)(dst[at:]), (*[n]float32)(row)
				a, b, c, d, e, f := from[0], from[1], from[2], from[3], from[4], from[5]
				to[0], to[1], to[2] = a*factor, b*factor, c*factor
				to[3], to[4], to[5] = d*factor, e*factor, f*factor
				at += m.Rows * n
			}
		}
	}
}

// packRows packs TileRows rows that are stride apart.
func packRows(dst, x []float32, stride int, factor float32) {
	n := len(dst) / kernels.TileRows
	a, b, c := x[:n], x[stride:][:n], x[2*stride:][:n]
	d, e, f := x[3*stride:][:n], x[4*stride:][:n], x[5*stride:][:n]
	for i, v := range a {
		*(*[kernels.TileRows]float32)(dst) = [kernels.TileRows]float32{
			v * factor, b[i] * factor, c[i] * factor, d[i] * factor, e[i] * factor, f[i] * factor,
		}
		dst = dst[kernels.TileRows:]
	}
}

// packRowsWide packs TileColumns rows that are stride apart, four at a time.
func packRowsWide(dst, x []float32, stride int, factor float32) {
	n := len(dst) / kernels.TileColumns
	for k := 0; k < kernels.TileColumns; k += 4 {
		a, b, c, d := x[k*stride:][:n], x[(k+1)*stride:][:n], x[(k+2)*stride:][:n], x[(k+3)*stride:][:n]
		for i, v := range a {
			*(*[4]float32)(dst[i*kernels.TileColumns+k:]) = [4]float32{v * factor, b[i] * factor, c[i] * factor, d[i] * factor}
		}
	}
}

// up rounds up to a multiple of n.
func up(x, n int) int { return (x + n - 1) / n * n }
