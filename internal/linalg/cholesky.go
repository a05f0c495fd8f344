package linalg

import (
	"context"
	"errors"
	"math"

	"onnxquant/internal/work"
)

// ErrNotPositive says that a matrix has no Cholesky factor.
var ErrNotPositive = errors.New("the matrix is not positive definite")

// leaf is the size below which matrices are not divided further.
const leaf = 48

// half divides n into two parts, the first a multiple of leaf.
func half(n int) int { return (n/2 + leaf - 1) / leaf * leaf }

// Cholesky replaces the lower triangle of a symmetric matrix by L, where L·Lᵀ is the matrix. Elements
// above the diagonal are not read, and undefined afterwards.
func Cholesky(ctx context.Context, workers int, a Matrix) error {
	if a.Rows <= leaf {
		return choleskyLeaf(a)
	}
	n, m := half(a.Rows), a.Rows-half(a.Rows)
	first, below, rest := a.Part(0, 0, n, n), a.Part(n, 0, m, n), a.Part(n, n, m, m)
	if err := Cholesky(ctx, workers, first); err != nil {
		return err
	}
	if err := DivideRight(ctx, workers, below, first); err != nil {
		return err
	}
	if err := AddLower(ctx, workers, rest, -1, below, below.T()); err != nil {
		return err
	}
	return Cholesky(ctx, workers, rest)
}

func choleskyLeaf(a Matrix) error {
	for i := range a.Rows {
		row := a.row(i)
		for j := range i {
			row[j] = float32((float64(row[j]) - dot(row[:j], a.row(j))) / float64(a.row(j)[j]))
		}
		d := float64(row[i]) - dot(row[:i], row)
		if !(d > 0) || math.IsInf(d, 0) {
			return ErrNotPositive
		}
		row[i] = float32(math.Sqrt(d))
	}
	return nil
}

// dot is the product of a and as many elements of b.
func dot(a, b []float32) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += float64(float64(v) * float64(b[i]))
	}
	return sum
}

// DivideRight replaces b by the X with X·Lᵀ = b, for a lower triangle L.
func DivideRight(ctx context.Context, workers int, b, l Matrix) error {
	if l.Rows <= leaf {
		return divideLeaf(ctx, workers, b, l, (*fewRows).right)
	}
	n, m := half(l.Rows), l.Rows-half(l.Rows)
	left, right := b.Part(0, 0, b.Rows, n), b.Part(0, n, b.Rows, m)
	if err := DivideRight(ctx, workers, left, l.Part(0, 0, n, n)); err != nil {
		return err
	}
	if err := Add(ctx, workers, right, -1, left, l.Part(n, 0, m, n).T()); err != nil {
		return err
	}
	return DivideRight(ctx, workers, right, l.Part(n, n, m, m))
}

// DivideRightTransposed replaces b by the X with X·L = b, for a lower triangle L.
func DivideRightTransposed(ctx context.Context, workers int, b, l Matrix) error {
	if l.Rows <= leaf {
		return divideLeaf(ctx, workers, b, l, (*fewRows).rightTransposed)
	}
	n, m := half(l.Rows), l.Rows-half(l.Rows)
	left, right := b.Part(0, 0, b.Rows, n), b.Part(0, n, b.Rows, m)
	if err := DivideRightTransposed(ctx, workers, right, l.Part(n, n, m, m)); err != nil {
		return err
	}
	if err := Add(ctx, workers, left, -1, right, l.Part(n, 0, m, n)); err != nil {
		return err
	}
	return DivideRightTransposed(ctx, workers, left, l.Part(0, 0, n, n))
}

// fewRows are elements of four rows, side by side: sums of one row would wait for each other.
type fewRows [leaf][4]float64

// divideLeaf divides the rows of b by a leaf of L, four at a time.
func divideLeaf(ctx context.Context, workers int, b, l Matrix, divide func(x *fewRows, l Matrix)) error {
	return work.Each(ctx, workers, up(b.Rows, leaf)/leaf, func(_ context.Context, x *fewRows, part int) error {
		for i := part * leaf; i < min((part+1)*leaf, b.Rows); i += 4 {
			rows := min(4, b.Rows-i)
			for r := range rows {
				for j, v := range b.row(i + r) {
					x[j][r] = float64(v)
				}
			}
			divide(x, l)
			for r := range rows {
				row := b.row(i + r)
				for j := range row {
					row[j] = float32(x[j][r])
				}
			}
		}
		return nil
	})
}

// right replaces rows x by those with x·Lᵀ.
func (x *fewRows) right(l Matrix) {
	for j := range l.Rows {
		row := l.row(j)
		var a, b, c, d float64
		for k, v := range row[:j] {
			v := float64(v)
			a += float64(x[k][0] * v)
			b += float64(x[k][1] * v)
			c += float64(x[k][2] * v)
			d += float64(x[k][3] * v)
		}
		x.set(j, float64(row[j]), x[j][0]-a, x[j][1]-b, x[j][2]-c, x[j][3]-d)
	}
}

// rightTransposed replaces rows x by those with x·L.
func (x *fewRows) rightTransposed(l Matrix) {
	for j := l.Rows - 1; j >= 0; j-- {
		a, b, c, d := x[j][0], x[j][1], x[j][2], x[j][3]
		for k := j + 1; k < l.Rows; k++ {
			v := float64(l.Data[k*l.Row+j])
			a -= float64(x[k][0] * v)
			b -= float64(x[k][1] * v)
			c -= float64(x[k][2] * v)
			d -= float64(x[k][3] * v)
		}
		x.set(j, float64(l.row(j)[j]), a, b, c, d)
	}
}

// set sets elements j to float32 quotients.
func (x *fewRows) set(j int, by, a, b, c, d float64) {
	x[j] = [4]float64{float64(float32(a / by)), float64(float32(b / by)), float64(float32(c / by)), float64(float32(d / by))}
}
