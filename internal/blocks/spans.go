package blocks

import "iter"

// Span is a part of a slice.
type Span struct{ From, To int }

// Spans cuts a weight [k, n] with blocks along k into rows of blocks. It yields where the elements of each
// row of blocks are, and where its blocks are among all of them.
func Spans(k, n, block int) iter.Seq2[Span, Span] {
	return func(yield func(elements, blocks Span) bool) {
		for i, from := 0, 0; from < k; i, from = i+1, from+block {
			to := k
			if k-from > block {
				to = from + block
			}
			if !yield(Span{from * n, to * n}, Span{i * n, (i + 1) * n}) {
				return
			}
		}
	}
}

// Cut returns the part of a slice, nil of nil.
func Cut[T any](x []T, s Span) []T {
	if x == nil {
		return nil
	}
	return x[s.From:s.To]
}
