// Package linalg computes with dense matrices of float32, in blocks that stay in the caches.
//
// The order of additions depends only on the shapes. So results have the same bits with any number of
// workers and on every processor. The caller owns all matrices.
package linalg

// Matrix is a view of numbers: element (i, j) is Data[i*Row+j*Column].
type Matrix struct {
	Data          []float32
	Rows, Columns int
	Row, Column   int // distances between the elements of a column, and of a row
}

// Of returns the matrix of contiguous rows.
func Of(data []float32, rows, columns int) Matrix {
	return Matrix{data[:rows*columns], rows, columns, columns, 1}
}

// T is the transpose.
func (m Matrix) T() Matrix { return Matrix{m.Data, m.Columns, m.Rows, m.Column, m.Row} }

// Part is the part of m that begins at (i, j).
func (m Matrix) Part(i, j, rows, columns int) Matrix {
	if rows == 0 || columns == 0 {
		return Matrix{nil, rows, columns, m.Row, m.Column}
	}
	return Matrix{m.Data[i*m.Row+j*m.Column:], rows, columns, m.Row, m.Column}
}

// row is row i of a matrix whose rows are contiguous.
func (m Matrix) row(i int) []float32 { return m.Data[i*m.Row:][:m.Columns] }
