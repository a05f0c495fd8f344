package kernels

import (
	"fmt"
	"iter"
)

// Span is the place of a block's elements.
type Span struct{ Start, End int }

// Blocks numbers the blocks of n elements that are rows of k, each cut into
// blocks, the last one shorter if k leaves a rest. It panics if n is not a number
// of rows.
func Blocks(n, k, block int) iter.Seq2[int, Span] {
	if n > 0 && (k < 1 || block < 1 || n%k != 0) {
		panic(fmt.Sprintf("%d elements are no rows of %d in blocks of %d", n, k, block))
	}
	return func(yield func(int, Span) bool) {
		i := 0
		for row := 0; row < n; row += k {
			for at := 0; at < k; at += block {
				if !yield(i, Span{row + at, row + at + min(block, k-at)}) {
					return
				}
				i++
			}
		}
	}
}

// CheckColumns panics if n elements are no rows of so many columns.
func CheckColumns(n, columns int) {
	if n > 0 && (columns == 0 || n%columns != 0) {
		panic(fmt.Sprintf("%d elements are no rows of %d", n, columns))
	}
}

// AbsMaxBlocks raises acc[i] as AbsMax does by the elements of block i, see Blocks.
func AbsMaxBlocks(acc, x []float32, k, block int) {
	for i, b := range Blocks(len(x), k, block) {
		acc[i] = AbsMax(acc[i], x[b.Start:b.End])
	}
}
