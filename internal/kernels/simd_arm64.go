//go:build arm64 && !purego

package kernels

import "unsafe"

// Every arm64 processor has NEON. The assembly takes whole vectors, eight elements each, and Go the rest.

// whole is how many of n elements are in whole vectors.
func whole(n int) int { return n &^ 7 }

// inBlocks divides n elements in blocks. vectors takes some blocks of size elements, a multiple of 8, which begin
// with block b and element at; rest takes fewer than 8 elements, from at to end of block b.
func inBlocks(n, block int, vectors func(b, at, blocks, size int), rest func(b, at, end int)) {
	b, at := 0, 0
	if block%8 == 0 && n >= block {
		vectors(b, at, n/block, block)
		b, at = n/block, n/block*block
	}
	for ; at < n; b++ {
		end := at + min(block, n-at)
		if size := whole(end - at); size > 0 {
			vectors(b, at, 1, size)
			at += size
		}
		if at < end {
			rest(b, at, end)
			at = end
		}
	}
}

// inColumns divides n columns of rows. vectors takes the first columns, a multiple of 8, of some rows that begin with
// element at; rest takes the others, from element at to end.
func inColumns(n, elements int, vectors func(at, columns, rows int), rest func(column, at, end int)) {
	first := whole(n)
	if first == n {
		vectors(0, n, elements/n)
		return
	}
	for at := 0; at < elements; at += n {
		if first > 0 {
			vectors(at, first, 1)
		}
		rest(first, at+first, at+n)
	}
}

func absMaxBlocks(acc, x []float32, block int) {
	inBlocks(len(x), block,
		func(b, at, blocks, size int) { absMaxBlocksNEON(&acc[b], &x[at], blocks, size) },
		func(b, at, end int) { absMaxBlocksGo(acc[b:b+1], x[at:end], block) })
}

func absMaxColumns(acc, x []float32) {
	inColumns(len(acc), len(x),
		func(at, columns, rows int) { absMaxColumnsNEON(&acc[0], &x[at], columns, rows) },
		func(column, at, end int) { absMaxColumnsGo(acc[column:], x[at:end]) })
}

func rangeBlocks(lo, hi, x []float32, block int) {
	inBlocks(len(x), block,
		func(b, at, blocks, size int) { rangeBlocksNEON(&lo[b], &hi[b], &x[at], blocks, size) },
		func(b, at, end int) { rangeBlocksGo(lo[b:b+1], hi[b:b+1], x[at:end], block) })
}

func rangeColumns(lo, hi, x []float32) {
	inColumns(len(hi), len(x),
		func(at, columns, rows int) { rangeColumnsNEON(&lo[0], &hi[0], &x[at], columns, rows) },
		func(column, at, end int) { rangeColumnsGo(lo[column:], hi[column:], x[at:end]) })
}

// padded is a vector of a few elements and, behind them, zeros, which make no errors.
type padded struct {
	x, scale [8]float32
	q, zero  [8]byte
}

func quantizeBlocks(q []byte, x, scale []float32, zero []byte, block int, f Format, s *ErrorSums) {
	step := 0
	if len(zero) > 1 {
		step = 1
	}
	inBlocks(len(x), block,
		func(b, at, blocks, size int) {
			quantizeBlocksNEON(&q[at], &x[at], &scale[b], &zero[b*step], step, blocks, size,
				f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
		},
		func(b, at, end int) {
			var p padded
			copy(p.x[:], x[at:end])
			quantizeBlocksNEON(&p.q[0], &p.x[0], &scale[b], &zero[b*step], 0, 1, 8,
				f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
			copy(q[at:end], p.q[:])
		})
}

func quantizeColumns(q []byte, x, scale []float32, zero []byte, f Format, s *ErrorSums) {
	zeros := len(zero) > 1
	inColumns(len(scale), len(x),
		func(at, columns, rows int) {
			quantizeColumnsNEON(&q[at], &x[at], &scale[0], &zero[0], zeros, columns, rows,
				f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
		},
		func(column, at, end int) {
			var p padded
			fill(p.scale[:], 1)
			copy(p.x[:], x[at:end])
			copy(p.scale[:], scale[column:])
			copy(p.zero[:], zero[min(column, len(zero)-1):])
			quantizeColumnsNEON(&p.q[0], &p.x[0], &p.scale[0], &p.zero[0], zeros, 8, 1,
				f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
			copy(q[at:end], p.q[:])
		})
}

func roundUpColumns(q []byte, x, factor, offset []float32, steps float32, least byte) {
	inColumns(len(factor), len(x),
		func(at, columns, rows int) {
			roundUpColumnsNEON(&q[at], &x[at], &factor[0], &offset[0], columns, rows, steps, least)
		},
		func(column, at, end int) {
			roundUpColumnsGo(q[at:end], x[at:end], factor[column:], offset[column:], steps, least)
		})
}

// dequantizeBlock dequantizes the first elements, and returns how many.
func dequantizeBlock(x []float32, q []byte, scale float32, zero, lo int32) int {
	n := whole(len(q))
	if n > 0 {
		dequantizeBlockNEON(&x[:n][0], &q[0], scale, n, lo, zero-lo)
	}
	return n
}

// dequantizeColumns dequantizes the first columns, and returns how many.
func dequantizeColumns(x []float32, q []byte, scale []float32, zeros []byte, zero, lo int32) int {
	n, first := len(scale), whole(len(scale))
	if first == 0 || len(q) < n {
		return 0
	}
	dequantizeColumnsNEON(&x[:len(q)][0], &q[0], &scale[0], unsafe.SliceData(zeros), n, first, len(q)/n, lo, zero-lo)
	return first
}

func (s *ErrorSums) add(x, y []float32) {
	n := whole(len(x))
	if n > 0 {
		addErrorsNEON(&x[0], &y[0], n, &s.sqErr, &s.sq, &s.maxAbs)
	}
	s.addGo(x[n:], y[n:])
}

func pack4(dst, q []byte) {
	if n := len(q) &^ 63; n > 0 {
		pack4NEON(&dst[0], &q[0], n)
		dst, q = dst[n/2:], q[n:]
	}
	pack4Go(dst, q)
}

func pack2(dst, q []byte) {
	if n := len(q) &^ 63; n > 0 {
		pack2NEON(&dst[0], &q[0], n)
		dst, q = dst[n/4:], q[n:]
	}
	pack2Go(dst, q)
}

func unpack4(q, src []byte, sign byte) {
	if n := len(q) &^ 63; n > 0 {
		unpack4NEON(&q[0], &src[0], n, sign)
		q, src = q[n:], src[n/2:]
	}
	unpack4Go(q, src, sign)
}

func unpack2(q, src []byte, sign byte) {
	if n := len(q) &^ 63; n > 0 {
		unpack2NEON(&q[0], &src[0], n, sign)
		q, src = q[n:], src[n/4:]
	}
	unpack2Go(q, src, sign)
}

func fromFloat16(x []float32, src []byte) {
	n := whole(len(x))
	if n > 0 {
		fromFloat16NEON(&x[0], &src[0], n)
	}
	fromFloat16Go(x[n:], src[2*n:])
}

func fromBFloat16(x []float32, src []byte) {
	n := whole(len(x))
	if n > 0 {
		fromBFloat16NEON(&x[0], &src[0], n)
	}
	fromBFloat16Go(x[n:], src[2*n:])
}

// lossCounts are the counts of finite elements that became infinite, of others that became 0, and of NaN.
type lossCounts [3]uint32

func toFloat16(dst []byte, x []float32) (beyond, vanished int) {
	var l lossCounts
	n := whole(len(x))
	if n > 0 {
		toFloat16NEON(&dst[0], &x[0], n, (*[3]uint32)(&l))
	}
	if l[2] > 0 { // the assembly keeps other bits of a NaN
		return toFloat16Go(dst, x)
	}
	return l.and(toFloat16Go(dst[2*n:], x[n:]))
}

func toBFloat16(dst []byte, x []float32) (beyond, vanished int) {
	var l lossCounts
	n := whole(len(x))
	if n > 0 {
		toBFloat16NEON(&dst[0], &x[0], n, (*[3]uint32)(&l))
	}
	if l[2] > 0 {
		return toBFloat16Go(dst, x)
	}
	return l.and(toBFloat16Go(dst[2*n:], x[n:]))
}

// and adds the counts of the rest of the elements.
func (l *lossCounts) and(beyond, vanished int) (int, int) {
	return beyond + int(l[0]), vanished + int(l[1])
}
