package kernels

import (
	"fmt"
	"iter"
)

// Span is the place of a block's elements.
type Span struct{ Start, End int }

// Blocks numbers the blocks of n elements. The elements are rows of k; each row is cut into blocks,
// the last one shorter if the block size does not divide k. It panics if n is not a multiple of k.
func Blocks(n, k, block int) iter.Seq2[int, Span] {
	checkBlocks(n, k, block)
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

// CheckColumns panics if n is not a multiple of columns.
func CheckColumns(n, columns int) {
	if n > 0 && (columns == 0 || n%columns != 0) {
		panic(fmt.Sprintf("%d elements are no rows of %d", n, columns))
	}
}

// run is a stretch of elements with the number of its blocks. All blocks have the same length, except
// the last, which may be shorter.
type run struct{ start, end, blocks int }

// runs cuts elements as Blocks does, into as few runs as possible, each with the number of its first
// block: a single run if blocks divide rows, else one per row.
func runs(n, k, block int) iter.Seq2[int, run] {
	checkBlocks(n, k, block)
	length := k
	if n > 0 && k%block == 0 {
		length = n
	}
	return func(yield func(int, run) bool) {
		first := 0
		for at := 0; at < n; at += length {
			blocks := (length-1)/block + 1
			if !yield(first, run{at, at + length, blocks}) {
				return
			}
			first += blocks
		}
	}
}

// checkBlocks panics if n elements are no rows of k in blocks.
func checkBlocks(n, k, block int) {
	if n > 0 && (k < 1 || block < 1 || n%k != 0) {
		panic(fmt.Sprintf("%d elements are no rows of %d in blocks of %d", n, k, block))
	}
}
