package packing

import (
	"iter"

	"onnxquant/internal/buffer"
)

// Placement says where elements are stored in their tensor. They are seen as [Outer, K,
// Inner] and stored in this order or, if Transposed, as [Outer, Inner, K]. Rows of K may be
// padded.
type Placement struct {
	Outer, K, Inner int64
	Transposed      bool
	Pitch           int64 // elements from the start of one row of K to the next, if K is the last axis
	HighFirst       bool  // the first of the two codes in a byte has its high bits
}

// InOrder places elements in the order [outer, k, inner], without padding.
func InOrder(outer, k, inner int64) Placement {
	return Placement{Outer: outer, K: k, Inner: inner, Pitch: k}
}

// Size is the number of elements, padding included.
func (s Placement) Size() int64 { return s.Outer * s.Inner * s.Pitch }

// Run says that elements From, …, From+N-1 of a buffer are elements At, …, At+N-1 of the
// tensor.
type Run struct{ From, At, N int64 }

// Arrange returns rows × n elements of a chunk in stored order: in *buf if that differs.
func Arrange[T any](s Placement, buf *[]T, x []T, rows, n int64) []T {
	if !s.Transposed {
		return x
	}
	transposed := buffer.Grow(buf, rows*n)
	Transpose(transposed, x, int(rows), int(n))
	return transposed
}

// Runs yields the places of a chunk's arranged elements: n of each of rows rows, from
// element off on.
func (s Placement) Runs(off, rows, n int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		switch {
		case s.Transposed: // the chunk is a part of one of the outer matrices
			at := off % (s.K * s.Inner)
			row := off/(s.K*s.Inner)*s.Inner + at%s.Inner
			first := at / s.Inner
			if rows == s.Pitch {
				yield(Run{0, row*s.Pitch + first, n * rows})
				return
			}
			for i := range n {
				if !yield(Run{i * rows, (row+i)*s.Pitch + first, rows}) {
					return
				}
			}
		case s.Inner > 1 || s.Pitch == s.K:
			for r := range rows {
				if !yield(Run{r * n, off + r*s.Inner, n}) {
					return
				}
			}
		default: // padded rows
			for from := int64(0); from < n; {
				row, first := (off+from)/s.K, (off+from)%s.K
				part := min(s.K-first, n-from)
				if !yield(Run{from, row*s.Pitch + first, part}) {
					return
				}
				from += part
			}
		}
	}
}
