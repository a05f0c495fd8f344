package onnxq

import (
	"iter"
	"onnxquant/internal/buffer"
)

// stored says where elements lie in the tensor that stores them. They are seen
// as [outer, k, inner] and stored in that order, or turned: as outer × inner
// rows of k elements. Rows of k may be padded.
type stored struct {
	outer, k, inner int64
	turned          bool
	pitch           int64 // elements from the start of one row of k to the next, where rows lie together
}

// size is the number of elements of the tensor, padding included.
func (s stored) size() int64 { return s.outer * s.inner * s.pitch }

// run is a piece of a tensor: elements from, …, from+n-1 of a buffer are its
// elements at, …, at+n-1.
type run struct{ from, at, n int64 }

// arrange brings rows × n elements of a chunk into the order in which they are
// stored, by way of *buf if they change places.
func arrange[T any](s stored, buf *[]T, x []T, rows, n int64) []T {
	if !s.turned {
		return x
	}
	turned := buffer.Grow(buf, rows*n)
	transpose(turned, x, int(rows), int(n))
	return turned
}

// runs yields where the arranged elements of a chunk lie: rows × n of them, n of
// each row, from element off on.
func (s stored) runs(off, rows, n int64) iter.Seq[run] {
	return func(yield func(run) bool) {
		switch {
		case s.turned: // the chunk is a part of one of the outer matrices
			at := off % (s.k * s.inner)
			row := off/(s.k*s.inner)*s.inner + at%s.inner
			first := at / s.inner
			if rows == s.pitch {
				yield(run{0, row*s.pitch + first, n * rows})
				return
			}
			for i := range n {
				if !yield(run{i * rows, (row+i)*s.pitch + first, rows}) {
					return
				}
			}
		case s.inner > 1 || s.pitch == s.k:
			for r := range rows {
				if !yield(run{r * n, off + r*s.inner, n}) {
					return
				}
			}
		default: // padded rows
			for from := int64(0); from < n; {
				row, first := (off+from)/s.k, (off+from)%s.k
				part := min(s.k-first, n-from)
				if !yield(run{from, row*s.pitch + first, part}) {
					return
				}
				from += part
			}
		}
	}
}

// transpose turns rows × n elements into n × rows, a few rows at a time so that
// what is written stays in the cache.
func transpose[T any](dst, src []T, rows, n int) {
	const most = 16
	for first := 0; first < rows; first += most {
		last := min(first+most, rows)
		for c := range n {
			column := dst[c*rows+first : c*rows+last]
			for i := range column {
				column[i] = src[(first+i)*n+c]
			}
		}
	}
}
