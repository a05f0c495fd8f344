package linalg

import (
	"context"

	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
	"onnxquant/internal/work"
)

// Symmetric is a symmetric matrix. It reads the elements above the diagonal of a square array, whose others may be those
// of another matrix.
type Symmetric struct {
	above    Matrix
	below    bool      // the array has the elements below the diagonal, and on it, too
	packed   []float32 // all elements, as the right operand of products; or nil
	Diagonal []float32
}

// SymmetricOf returns the matrix with this diagonal and the elements above the diagonal of data, which has as many rows
// and columns.
func SymmetricOf(data, diagonal []float32) Symmetric {
	return Symmetric{Of(data, len(diagonal), len(diagonal)), false, nil, diagonal}
}

// WholeSymmetric is SymmetricOf for an array with all elements. Its parts need no copies.
func WholeSymmetric(data, diagonal []float32) Symmetric {
	return Symmetric{Of(data, len(diagonal), len(diagonal)), true, nil, diagonal}
}

// Packed returns a matrix of WholeSymmetric with a copy of all elements, in the order in which AddRight takes them. Many
// products then take less time.
func (s Symmetric) Packed(ctx context.Context, workers int) (Symmetric, error) {
	k := s.Rows()
	s.packed = make([]float32, PackedSize(k))
	return s, work.Each(ctx, workers, up(k, width)/width, func(_ context.Context, _ *struct{}, part int) error {
		at := part * width
		pack(s.packed[at*k:], s.above.Part(0, at, k, min(width, k-at)), kernels.TileColumns, 1)
		return nil
	})
}

// PackedSize is how many elements Packed copies of a matrix of k rows.
func PackedSize(k int) int { return k * up(k, kernels.TileColumns) }

// Rows is the number of rows, and of columns.
func (s Symmetric) Rows() int { return len(s.Diagonal) }

// Right returns the elements of row i behind the diagonal.
func (s Symmetric) Right(i int) []float32 { return s.above.row(i)[i+1:] }

// Part returns the part that begins at (i, j): a view, or a copy in x if it touches the diagonal.
func (s Symmetric) Part(x *[]float32, i, j, rows, columns int) Matrix {
	switch {
	case s.below || j >= i+rows:
		return s.above.Part(i, j, rows, columns)
	case i >= j+columns:
		return s.above.Part(j, i, columns, rows).T()
	}
	return s.Copy(x, i, j, rows, columns)
}

// Copy returns a copy, in x, of the part that begins at (i, j). Its rows are contiguous.
func (s Symmetric) Copy(x *[]float32, i, j, rows, columns int) Matrix {
	const side = 16 // squares of so many rows stay in the first cache, if rows are not a power of two apart
	to := Matrix{buffer.Grow(x, int64(rows*(columns+side))), rows, columns, columns + side, 1}
	for c := 0; c < columns; c += side {
		for r := 0; r < rows; r += side {
			part := to.Part(r, c, min(side, rows-r), min(side, columns-c))
			switch {
			case j+c >= i+r+part.Rows:
				from := s.above.Part(i+r, j+c, part.Rows, part.Columns)
				for y := range part.Rows {
					copy(part.row(y), from.row(y))
				}
			case i+r >= j+c+part.Columns:
				transpose(part, s.above.Part(j+c, i+r, part.Columns, part.Rows))
			default:
				for y := range part.Rows {
					for x := range part.Columns {
						part.Data[y*part.Row+x] = s.at(i+r+y, j+c+x)
					}
				}
			}
		}
	}
	return to
}

func (s Symmetric) at(i, j int) float32 {
	switch {
	case i < j:
		return s.above.Data[i*s.above.Row+j]
	case i > j:
		return s.above.Data[j*s.above.Row+i]
	}
	return s.Diagonal[i]
}

// Mirror copies the elements below the diagonal of a square matrix, whose rows are contiguous, to those above.
func Mirror(a Matrix) {
	const side = 16
	for i := 0; i < a.Rows; i += side {
		for j := 0; j < i; j += side {
			rows := min(side, a.Rows-i)
			transpose(a.Part(j, i, side, rows), a.Part(i, j, rows, side))
		}
		for y := i; y < min(i+side, a.Rows); y++ {
			for x := i; x < y; x++ {
				a.Data[x*a.Row+y] = a.Data[y*a.Row+x]
			}
		}
	}
}

// Transpose sets the elements of a matrix to those of another's transpose. Rows of both are contiguous.
func Transpose(to, from Matrix) {
	const side = 16
	for i := 0; i < from.Rows; i += side {
		for j := 0; j < from.Columns; j += side {
			rows, columns := min(side, from.Rows-i), min(side, from.Columns-j)
			transpose(to.Part(j, i, columns, rows), from.Part(i, j, rows, columns))
		}
	}
}

// transpose is Transpose of a few elements.
func transpose(to, from Matrix) {
	for x := range from.Rows {
		row := from.row(x)
		for y, v := range row {
			to.Data[y*to.Row+x] = v
		}
	}
}

// SymmetricMultiplier multiplies by symmetric matrices. It owns its buffers and is not for concurrent use.
type SymmetricMultiplier struct {
	Multiplier
	part []float32
}

// AddLeft adds the product of a part of s that begins at (i, j) and b to c, whose rows are contiguous.
func (m *SymmetricMultiplier) AddLeft(c Matrix, s Symmetric, i, j int, b Matrix) {
	for y := 0; y < c.Rows; y += height {
		rows := min(height, c.Rows-y)
		for k := 0; k < b.Rows; k += depth {
			n := min(depth, b.Rows-k)
			m.Add(c.Part(y, 0, rows, c.Columns), 1, s.Part(&m.part, i+y, j+k, rows, n), b.Part(k, 0, n, b.Columns))
		}
	}
}

// AddRight adds the product of a and a part of s that begins at (i, j) to c, whose rows are contiguous.
func (m *SymmetricMultiplier) AddRight(c Matrix, a Matrix, s Symmetric, i, j int) {
	if s.packed != nil && j%kernels.TileColumns == 0 && a.Rows <= height {
		m.addPacked(c, a, s, i, j)
		return
	}
	for x := 0; x < c.Columns; x += width {
		columns := min(width, c.Columns-x)
		for k := 0; k < a.Columns; k += depth {
			n := min(depth, a.Columns-k)
			m.Add(c.Part(0, x, c.Rows, columns), 1, a.Part(0, k, a.Rows, n), s.Part(&m.part, i+k, j+x, n, columns))
		}
	}
}

// addPacked is AddRight for a packed matrix, with the same bits.
func (m *SymmetricMultiplier) addPacked(c Matrix, a Matrix, s Symmetric, i, j int) {
	for k := 0; k < a.Columns; k += depth {
		n := min(depth, a.Columns-k)
		m.packLeft(a.Part(0, k, a.Rows, n), 1)
		t := tiles{c: c, other: c, n: n}
		for y := 0; y < c.Columns; y += kernels.TileColumns {
			right := s.packed[(j+y)*s.Rows()+(i+k)*kernels.TileColumns:][:n*kernels.TileColumns]
			for x := 0; x < c.Rows; x += kernels.TileRows {
				m.addTile(&t, x, y, right)
			}
		}
	}
}
