//go:build amd64 && !purego

package kernels

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

//go:generate sh -c "cd _gen && go run . -pkg kernels -out ../simd_amd64.s -stubs ../simd_stubs_amd64.go"
//go:generate sh -c "cd _gen && go run . -floats -pkg kernels -out ../simd_float_amd64.s -stubs ../simd_float_stubs_amd64.go"

// An instructionSet is one that there is assembly for. Each includes those
// before it.
type instructionSet int

const (
	plainGo instructionSet = iota
	avx2                   // with FMA, F16C and BMI2
	avx512                 // with F, BW, DQ and VL
)

// instructions is the largest instruction set of the processor that the loops use.
var instructions = func() instructionSet {
	x := cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasBMI2 || !hasF16C():
		return plainGo
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return avx2
	}
	return avx512
}()

// The functions up to add are not called for no elements.

func absMaxBlocks(acc, x []float32, block int) {
	switch instructions {
	case avx512:
		absMaxBlocksAVX512(&acc[0], &x[0], len(x), block)
	case avx2:
		absMaxBlocksAVX2(&acc[0], &x[0], len(x), block)
	default:
		absMaxBlocksGo(acc, x, block)
	}
}

func absMaxColumns(acc, x []float32) {
	rows := len(x) / len(acc)
	switch instructions {
	case avx512:
		absMaxColumnsAVX512(&acc[0], &x[0], len(acc), rows)
	case avx2:
		absMaxColumnsAVX2(&acc[0], &x[0], len(acc), rows)
	default:
		absMaxColumnsGo(acc, x)
	}
}

func rangeBlocks(lo, hi, x []float32, block int) {
	switch instructions {
	case avx512:
		rangeBlocksAVX512(&lo[0], &hi[0], &x[0], len(x), block)
	case avx2:
		rangeBlocksAVX2(&lo[0], &hi[0], &x[0], len(x), block)
	default:
		rangeBlocksGo(lo, hi, x, block)
	}
}

func rangeColumns(lo, hi, x []float32) {
	rows := len(x) / len(hi)
	switch instructions {
	case avx512:
		rangeColumnsAVX512(&lo[0], &hi[0], &x[0], len(hi), rows)
	case avx2:
		rangeColumnsAVX2(&lo[0], &hi[0], &x[0], len(hi), rows)
	default:
		rangeColumnsGo(lo, hi, x)
	}
}

func quantizeBlocks(q []byte, x, scale []float32, zero []byte, block int, f Format, s *ErrorSums) {
	step := 0
	if len(zero) > 1 {
		step = 1
	}
	switch instructions {
	case avx512:
		quantizeBlocksAVX512(&q[0], &x[0], &scale[0], &zero[0], step, len(x), block,
			f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
	case avx2:
		quantizeBlocksAVX2(&q[0], &x[0], &scale[0], &zero[0], step, len(x), block,
			f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		quantizeBlocksGo(q, x, scale, zero, block, f, s)
	}
}

func quantizeColumns(q []byte, x, scale []float32, zero []byte, f Format, s *ErrorSums) {
	n, zeros := len(scale), len(zero) > 1
	switch {
	case instructions == avx512:
		quantizeColumnsAVX512(&q[0], &x[0], &scale[0], &zero[0], zeros, n, len(x)/n,
			f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
	case instructions == avx2 && (!zeros || n >= 8):
		quantizeColumnsAVX2(&q[0], &x[0], &scale[0], &zero[0], zeros, n, len(x)/n,
			f.Lo, f.Hi, int(f.Type), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		quantizeColumnsGo(q, x, scale, zero, f, s)
	}
}

func roundUpColumns(q []byte, x, factor, offset []float32, steps float32, least byte) {
	n := len(factor)
	switch instructions {
	case avx512:
		roundUpColumnsAVX512(&q[0], &x[0], &factor[0], &offset[0], n, len(x)/n, steps, least)
	case avx2:
		roundUpColumnsAVX2(&q[0], &x[0], &factor[0], &offset[0], n, len(x)/n, steps, least)
	default:
		roundUpColumnsGo(q, x, factor, offset, steps, least)
	}
}

// dequantizeBlock dequantizes the first elements, and returns how many.
func dequantizeBlock(x []float32, q []byte, scale float32, zero, lo int32) int {
	n := wholeVectors(len(q))
	switch {
	case n == 0:
	case instructions == avx512:
		dequantizeBlockAVX512(&x[:n][0], &q[0], scale, n, lo, zero-lo)
	default:
		dequantizeBlockAVX2(&x[:n][0], &q[0], scale, n, lo, zero-lo)
	}
	return n
}

// dequantizeColumns dequantizes the first columns, and returns how many.
func dequantizeColumns(x []float32, q []byte, scale []float32, zeros []byte, zero, lo int32) int {
	n, whole := len(scale), wholeVectors(len(scale))
	if whole == 0 || len(q) < n {
		return 0
	}
	x = x[:len(q)]
	switch rows := len(q) / n; instructions {
	case avx512:
		dequantizeColumnsAVX512(&x[0], &q[0], &scale[0], unsafe.SliceData(zeros), n, whole, rows, lo, zero-lo)
	default:
		dequantizeColumnsAVX2(&x[0], &q[0], &scale[0], unsafe.SliceData(zeros), n, whole, rows, lo, zero-lo)
	}
	return whole
}

// wholeVectors returns how many of n elements are in whole vectors.
func wholeVectors(n int) int {
	switch instructions {
	case avx512:
		return n &^ 15
	case avx2:
		return n &^ 7
	}
	return 0
}

func (s *ErrorSums) add(x, y []float32) {
	switch instructions {
	case avx512:
		addErrorsAVX512(&x[0], &y[0], len(x), &s.sqErr, &s.sq, &s.maxAbs)
	case avx2:
		addErrorsAVX2(&x[0], &y[0], len(x), &s.sqErr, &s.sq, &s.maxAbs)
	default:
		s.addGo(x, y)
	}
}

// Moving codes and widening elements is bound by memory with AVX2 already. The
// assembly takes a number of elements that it likes, plain Go the rest.

func pack4(dst, q []byte) {
	if n := len(q) &^ 63; instructions >= avx2 && n > 0 {
		pack4AVX2(&dst[0], &q[0], n)
		dst, q = dst[n/2:], q[n:]
	}
	pack4Go(dst, q)
}

func pack2(dst, q []byte) {
	if n := len(q) &^ 63; instructions >= avx2 && n > 0 {
		pack2AVX2(&dst[0], &q[0], n)
		dst, q = dst[n/4:], q[n:]
	}
	pack2Go(dst, q)
}

func unpack4(q, src []byte, sign byte) {
	if n := len(q) &^ 31; instructions >= avx2 && n > 0 {
		unpack4AVX2(&q[0], &src[0], n, sign)
		q, src = q[n:], src[n/2:]
	}
	unpack4Go(q, src, sign)
}

func unpack2(q, src []byte, sign byte) {
	if n := len(q) &^ 31; instructions >= avx2 && n > 0 {
		unpack2AVX2(&q[0], &src[0], n, sign)
		q, src = q[n:], src[n/4:]
	}
	unpack2Go(q, src, sign)
}

func fromFloat16(x []float32, src []byte) {
	if n := len(x) &^ 15; instructions >= avx2 && n > 0 {
		fromFloat16AVX2(&x[0], &src[0], n)
		x, src = x[n:], src[2*n:]
	}
	fromFloat16Go(x, src)
}

func fromBFloat16(x []float32, src []byte) {
	if n := len(x) &^ 15; instructions >= avx2 && n > 0 {
		fromBFloat16AVX2(&x[0], &src[0], n)
		x, src = x[n:], src[2*n:]
	}
	fromBFloat16Go(x, src)
}

func toFloat16(dst []byte, x []float32) (beyond, vanished int) {
	n := vectors(x)
	var l lossCounts
	if n > 0 {
		toFloat16AVX2(&dst[0], &x[0], n, &l[0])
	}
	if l.sum(countNaN) > 0 { // the assembly keeps other bits of a NaN
		return toFloat16Go(dst, x)
	}
	return l.and(toFloat16Go(dst[2*n:], x[n:]))
}

func toBFloat16(dst []byte, x []float32) (beyond, vanished int) {
	n := vectors(x)
	var l lossCounts
	if n > 0 {
		toBFloat16AVX2(&dst[0], &x[0], n, &l[0])
	}
	if l.sum(countNaN) > 0 {
		return toBFloat16Go(dst, x)
	}
	return l.and(toBFloat16Go(dst[2*n:], x[n:]))
}

// vectors returns how many elements assembly converts.
func vectors(x []float32) int {
	if instructions < avx2 {
		return 0
	}
	return len(x) &^ 15
}

// lossCounts has three counts, in 8 lanes each.
type lossCounts [24]uint32

const (
	countBeyond = iota
	countVanished
	countNaN
)

func (l *lossCounts) sum(what int) (n int) {
	for _, lane := range l[8*what : 8*what+8] {
		n += int(lane)
	}
	return n
}

// and adds the counts of the rest of the elements.
func (l *lossCounts) and(beyond, vanished int) (int, int) {
	return beyond + l.sum(countBeyond), vanished + l.sum(countVanished)
}
