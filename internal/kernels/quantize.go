package kernels

import "math"

// Adding magic to a float32 below 2^22 in magnitude rounds it to an integer, ties to even. The integer
// is then in the low half of the sum's bits. The bits of any other sum, as a signed integer, lie beyond
// every code on the side of its sign.
const (
	magic     = 3 << 22
	magicBits = 0x4b400000
)

// Format is an integer format, and the type of the elements.
type Format struct {
	Lo, Hi int32 // the least and the greatest code
	Type   Type
}

// Type is a type of floating-point numbers. Elements come as float32 whatever
// it is; it says what arithmetic is rounded to.
type Type int

const (
	Float32  Type = iota
	Float16       // quotients and decoded values are rounded to float16
	BFloat16      // decoded values are rounded to bfloat16
)

// QuantizeColumns sets each q to the code of its x,
//
//	q = clamp(rint(x/scale) + zero, Lo, Hi)
//
// with ties to even and rounded to f.Type. It adds the errors of the decoded values, (q-zero)*scale, to
// sums.
//
// Each row of x has len(scale) elements. zero has a zero point for each column, or a single one for all,
// stored like codes. Elements and scales are finite, no scale is 0, and no code represents an infinity.
// With type Float16, elements and scales are float16 numbers.
func QuantizeColumns(q []byte, x, scale []float32, zero []byte, f Format, sums *ErrorSums) {
	CheckColumns(len(x), len(scale))
	if len(x) > 0 {
		quantizeColumns(q[:len(x)], x, scale, zeros(zero, 0, len(scale)), f, sums)
	}
}

// QuantizeBlocks is QuantizeColumns for blocks (see Blocks): a scale for each block, and a zero point
// for each block or a single one for all.
func QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int, f Format, sums *ErrorSums) {
	for first, r := range runs(len(x), k, block) {
		n := first + r.blocks
		quantizeBlocks(q[r.start:r.end], x[r.start:r.end], scale[first:n], zeros(zero, first, n), block, f, sums)
	}
}

// QuantizeBlock quantizes x, a single block or a piece of one, as QuantizeBlocks does:
// scale and zero have one element.
func QuantizeBlock(q []byte, x, scale []float32, zero []byte, f Format, sums *ErrorSums) {
	if len(x) > 0 {
		quantizeBlocks(q[:len(x)], x, scale[:1], zero[:1], len(x), f, sums)
	}
}

// zeros returns the zero points of blocks or columns first … n-1, or the single
// one there is.
func zeros(zero []byte, first, n int) []byte {
	if len(zero) == 1 {
		return zero
	}
	return zero[first:n]
}

// pieceLen is how many elements the plain loops take through their steps at a
// time. Parts of sums restart with each row or block, so 8 must divide it.
const pieceLen = 256

// piece is the data between the steps.
type piece struct {
	scale   [pieceLen]float32
	zero    [pieceLen]int32
	decoded [pieceLen]float32
}

func quantizeColumnsGo(q []byte, x, scale []float32, zero []byte, f Format, sums *ErrorSums) {
	var p piece
	fill(p.zero[:], zeroPoint(zero[0], f.Lo))
	for at := 0; at < len(x); at += len(scale) {
		for i := 0; i < len(scale); i += pieceLen {
			n := min(pieceLen, len(scale)-i)
			copy(p.scale[:n], scale[i:])
			if len(zero) > 1 {
				for j, z := range zero[i : i+n] {
					p.zero[j] = zeroPoint(z, f.Lo)
				}
			}
			p.quantize(q[at+i:at+i+n], x[at+i:at+i+n], f, sums)
		}
	}
}

func quantizeBlocksGo(q []byte, x, scale []float32, zero []byte, block int, f Format, sums *ErrorSums) {
	var p piece
	fill(p.zero[:], zeroPoint(zero[0], f.Lo))
	for b, s := range scale {
		at := b * block
		end := at + min(block, len(x)-at)
		fill(p.scale[:min(block, pieceLen)], s)
		if len(zero) > 1 {
			fill(p.zero[:min(block, pieceLen)], zeroPoint(zero[b], f.Lo))
		}
		for ; at < end; at += pieceLen {
			n := min(pieceLen, end-at)
			p.quantize(q[at:at+n], x[at:at+n], f, sums)
		}
	}
}

func fill[T any](s []T, v T) {
	for i := range s {
		s[i] = v
	}
}

// quantize quantizes x by the first of the piece's scales and zero points.
func (p *piece) quantize(q []byte, x []float32, f Format, sums *ErrorSums) {
	y, scale, zero := p.decoded[:len(x)], p.scale[:len(x)], p.zero[:len(x)]
	for i, v := range x {
		y[i] = v / scale[i]
	}
	if f.Type == Float16 {
		for i, t := range y {
			y[i] = halfQuotient(t)
		}
	}
	q = q[:len(x)]
	for i, t := range y {
		z := zero[i]
		b := int32(math.Float32bits(t + magic))
		b = min(max(b, magicBits+f.Lo-z), magicBits+f.Hi-z)
		q[i] = byte(b + z)
		y[i] = (math.Float32frombits(uint32(b)) - magic) * scale[i]
	}
	if f.Type == Float16 {
		for i, v := range y {
			y[i] = halfProduct(v)
		}
	} else {
		round(y, f.Type)
	}
	sums.addGo(x, y)
}

// zeroPoint returns the value of a zero point of codes from lo up, stored as a
// code is.
func zeroPoint(z byte, lo int32) int32 { return int32(z-byte(lo)) + lo }

// RoundUpColumns sets each q to a code of its x, counted from least,
//
//	q = least + clamp(round(x*factor + offset), 0, steps)
//
// with ties up, and 0 for NaN. Each row of x has len(factor) elements, as offset has. steps is at
// most 255.
func RoundUpColumns(q []byte, x, factor, offset []float32, steps float32, least byte) {
	CheckColumns(len(x), len(factor))
	if len(x) > 0 {
		roundUpColumns(q[:len(x)], x, factor, offset[:len(factor)], steps, least)
	}
}

// RoundUpBlock is RoundUpColumns for a column alone.
func RoundUpBlock(q []byte, x []float32, factor, offset, steps float32, least byte) {
	for i, v := range x {
		q[i] = byte(roundUp(float32(v*factor)+offset, steps)) + least
	}
}

func roundUpColumnsGo(q []byte, x, factor, offset []float32, steps float32, least byte) {
	for n := len(factor); len(x) > 0; x, q = x[n:], q[n:] {
		row, codes := x[:n], q[:n]
		for i, f := range factor {
			codes[i] = byte(roundUp(float32(row[i]*f)+offset[i], steps)) + least
		}
	}
}

// roundUp rounds u to the nearest integer from 0 to steps, ties up.
func roundUp(u, steps float32) int32 {
	if !(u > 0) {
		return 0
	}
	if u > steps {
		u = steps
	}
	return (int32(u+u) + 1) >> 1 // no sum is rounded
}
