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
)

// Multiplier adds products of matrices to other matrices. It owns its buffers and is not for
// concurrent use.
type Multiplier struct{ left, right, edge []float32 }

// Add adds factor·a·b to c, whose rows are contiguous.
func (m *Multiplier) Add(c Matrix, factor float32, a, b Matrix) {
	for i := 0; i < c.Rows; i += height {
		for j := 0; j < c.Columns; j += width {
			m.addPart(c, factor, a, b, i, j, false)
		}
	}
}

// Add adds factor·a·b to c, whose rows are contiguous, on several workers.
func Add(ctx context.Context, workers int, c Matrix, factor float32, a, b Matrix) error {
	return add(ctx, workers, c, factor, a, b, false)
}

// AddLower is Add for a symmetric product. It changes the diagonal of c and the elements below.
func AddLower(ctx context.Context, workers int, c Matrix, factor float32, a, b Matrix) error {
	return add(ctx, workers, c, factor, a, b, true)
}

func add(ctx context.Context, workers int, c Matrix, factor float32, a, b Matrix, lower bool) error {
	var parts [][2]int
	for i := 0; i < c.Rows; i += height {
		for j := 0; j < c.Columns && !(lower && j > i+height); j += width {
			parts = append(parts, [2]int{i, j})
		}
	}
	return work.Each(ctx, workers, len(parts), func(_ context.Context, m *Multiplier, i int) error {
		m.addPart(c, factor, a, b, parts[i][0], parts[i][1], lower)
		return nil
	})
}

// addPart adds to the part of c that begins at (i, j).
func (m *Multiplier) addPart(c Matrix, factor float32, a, b Matrix, i, j int, lower bool) {
	rows, columns := min(height, c.Rows-i), min(width, c.Columns-j)
	for k := 0; k < a.Columns; k += depth {
		n := min(depth, a.Columns-k)
		m.packLeft(a.Part(i, k, rows, n), factor)
		pack(buffer.Grow(&m.right, int64(up(columns, kernels.TileColumns)*n)), b.Part(k, j, n, columns), kernels.TileColumns, 1)
		m.addTiles(c.Part(i, j, rows, columns), n, lower, j-i)
	}
}

// packLeft packs rows of a left operand.
func (m *Multiplier) packLeft(a Matrix, factor float32) {
	pack(buffer.Grow(&m.left, int64(up(a.Rows, kernels.TileRows)*a.Columns)), a.T(), kernels.TileRows, factor)
}

// addTiles adds the product of the packed operands, of n columns and rows, to c. With lower it leaves out elements
// above a diagonal; shift is how many columns c begins behind its row.
func (m *Multiplier) addTiles(c Matrix, n int, lower bool, shift int) {
	for y := 0; y < c.Columns; y += kernels.TileColumns {
		right := m.right[y*n:][:kernels.TileColumns*n]
		for x := 0; x < c.Rows; x += kernels.TileRows {
			if lower && shift+y >= x+kernels.TileRows {
				continue
			}
			last := kernels.TileColumns - 1 // column of the tile that its first row has
			if lower {
				last = x - shift - y
			}
			m.addTile(c.Part(x, y, c.Rows-x, c.Columns-y), m.left[x*n:][:kernels.TileRows*n], right, last)
		}
	}
}

// addTile adds to the tile at the beginning of c, which may be smaller than a tile. Its first row ends with column
// last, and each row with a column more.
func (m *Multiplier) addTile(c Matrix, left, right []float32, last int) {
	if c.Rows >= kernels.TileRows && c.Columns >= kernels.TileColumns && last >= kernels.TileColumns-1 {
		kernels.MultiplyTile(c.Data, c.Row, left, right)
		return
	}
	clear(buffer.Grow(&m.edge, kernels.TileRows*kernels.TileColumns))
	kernels.MultiplyTile(m.edge, kernels.TileColumns, left, right)
	for i := range min(c.Rows, kernels.TileRows) {
		row := c.Data[i*c.Row:][:max(min(c.Columns, kernels.TileColumns, last+i+1), 0)]
		for j := range row {
			row[j] += m.edge[i*kernels.TileColumns+j]
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
