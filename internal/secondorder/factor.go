package secondorder

import (
	"context"
	"errors"
	"math"
	"slices"

	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
)

// Damping is added to the diagonal of a Hessian, as a share of its mean.
const Damping = 0.01

// SlightDamping is the damping for Search. It keeps codes near the weights where inputs hardly vary.
const SlightDamping = Damping / 10

// ErrHessian says that a Hessian has NaN or infinity, or nothing but zeros.
var ErrHessian = errors.New("the inputs of the layer are zero, NaN or infinite")

// Factor is a damped Hessian H, its rows and columns in the order of the diagonal, as L·Lᵀ. The
// order begins with the least.
type Factor struct {
	order    []int32 // of the elements
	l        linalg.Matrix
	diagonal []float32 // of the damped Hessian, in that order
}

// NewFactor replaces h, the lower triangle of a symmetric matrix of k rows, by its factor.
func NewFactor(ctx context.Context, workers int, h []float32, k int) (*Factor, error) {
	if _, err := Normalize(h, k); err != nil {
		return nil, err
	}
	order := orderOf(diagonalOf(h, k))
	permute(h, order)
	Damp(h, k, Damping)
	f := &Factor{order, linalg.Of(h, k, k), diagonalOf(h, k)}
	return f, linalg.Cholesky(ctx, workers, f.l)
}

// Beside is NewFactor for a normalized Hessian that is needed, too. It has more, a share of the mean, added to its diagonal.
func Beside(ctx context.Context, workers int, h []float32, k int, more float32) (linalg.Symmetric, *Factor, error) {
	f, err := NewFactor(ctx, workers, slices.Clone(h), k)
	Damp(h, k, more)
	return linalg.WholeSymmetric(h, diagonalOf(h, k)), f, err
}

// Split is Beside in half of the memory, and slower: it moves the factor into the lower triangle of the Hessian's array.
func Split(ctx context.Context, workers int, h []float32, k int, more float32) (linalg.Symmetric, *Factor, error) {
	diagonal := diagonalOf(h, k)
	all := linalg.SymmetricOf(h, diagonal)
	mean, err := meanOf(diagonal)
	if err != nil {
		return all, nil, err
	}
	scale := 1 / mean
	ordered := make([]float32, k)
	for i, v := range diagonal {
		ordered[i] = float32(float64(v) * scale)
	}
	order := orderOf(ordered)
	err = work.Each(ctx, workers, (k-1)/group+1, func(_ context.Context, _ *struct{}, part int) error {
		for i := part * group; i < min((part+1)*group, k); i++ {
			row, from := h[i*k:][:i+1], int(order[i])
			for j, to := range order[:i] {
				at := min(from, int(to))*k + max(from, int(to))
				row[j] = float32(float64(h[at]) * scale)
			}
			row[i] = ordered[from] + Damping
		}
		return nil
	})
	if err != nil {
		return all, nil, err
	}
	for i := range diagonal {
		diagonal[i] += more
	}
	f := &Factor{order, linalg.Of(h, k, k), diagonalOf(h, k)}
	return all, f, linalg.Cholesky(ctx, workers, f.l)
}

// orderOf lists the elements of a diagonal, the least first.
func orderOf(diagonal []float32) []int32 {
	order := make([]int32, len(diagonal))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch x, y := diagonal[a], diagonal[b]; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return order
}

// diagonalOf returns a copy of the diagonal of a matrix of k rows.
func diagonalOf(h []float32, k int) []float32 {
	diagonal := make([]float32, k)
	for i := range diagonal {
		diagonal[i] = h[i*(k+1)]
	}
	return diagonal
}

// meanOf returns the mean of the diagonal of a Hessian.
func meanOf(diagonal []float32) (float64, error) {
	var trace float64
	for _, v := range diagonal {
		trace += float64(v)
	}
	mean := trace / float64(len(diagonal))
	if !(mean > 0x1p-100) || math.IsInf(mean, 0) {
		return mean, ErrHessian
	}
	return mean, nil
}

// Normalize divides the lower triangle of a symmetric matrix by the mean of its diagonal, and copies
// it to the upper triangle. It returns the mean.
func Normalize(h []float32, k int) (mean float64, err error) {
	if mean, err = meanOf(diagonalOf(h, k)); err != nil {
		return mean, err
	}
	scale := 1 / mean
	for i := range k {
		row := h[i*k:][:i+1]
		for j, v := range row {
			v = float32(float64(v) * scale)
			if v-v != 0 {
				return mean, ErrHessian
			}
			row[j] = v
		}
	}
	linalg.Mirror(linalg.Of(h, k, k))
	return mean, nil
}

// Damp adds a share of the mean to the diagonal of a normalized matrix of k rows. Codes that are found
// without it may be far from the weights in directions that the inputs do not take.
func Damp(h []float32, k int, share float32) {
	for i := range k {
		h[i*k+i] += share
	}
}

// permute brings the rows and columns of a square matrix into an order, in place.
func permute(h []float32, order []int32) {
	k := len(order)
	row := make([]float32, k)
	for i := range k {
		own := h[i*k : (i+1)*k]
		copy(row, own)
		for j, from := range order {
			own[j] = row[from]
		}
	}
	done := make([]bool, k)
	for start := range order {
		if done[start] {
			continue
		}
		copy(row, h[start*k:(start+1)*k])
		for i := start; ; {
			done[i] = true
			from := int(order[i])
			if from == start {
				copy(h[i*k:(i+1)*k], row)
				break
			}
			copy(h[i*k:(i+1)*k], h[from*k:(from+1)*k])
			i = from
		}
	}
}

// Solve replaces the rows x of a matrix by the solutions y of H·y = x.
func (f *Factor) Solve(ctx context.Context, workers int, x linalg.Matrix) error {
	permuted := make([]float32, x.Columns)
	f.eachRow(x, func(row []float32) {
		for i, from := range f.order {
			permuted[i] = row[from]
		}
		copy(row, permuted)
	})
	if err := linalg.DivideRight(ctx, workers, x, f.l); err != nil {
		return err
	}
	if err := linalg.DivideRightTransposed(ctx, workers, x, f.l); err != nil {
		return err
	}
	f.eachRow(x, func(row []float32) {
		for i, to := range f.order {
			permuted[to] = row[i]
		}
		copy(row, permuted)
	})
	return nil
}

func (f *Factor) eachRow(x linalg.Matrix, do func(row []float32)) {
	for i := range x.Rows {
		do(x.Data[i*x.Row:][:x.Columns])
	}
}
