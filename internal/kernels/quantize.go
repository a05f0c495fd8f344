package kernels

import "math"

// Adding magic to a float32 below 2^22 in magnitude rounds it to an integer,
// ties to even, which is then the low half of the sum's bits. The bits of any
// other sum, as a signed integer, lie beyond every code on the side of its sign.
const (
	magic     = 3 << 22
	magicBits = 0x4b400000
)

// code returns the rounded quotient t plus zero, clamped to lo … hi.
func code(t float32, zero, lo, hi int32) byte {
	b := int32(math.Float32bits(t + magic))
	return byte(min(max(b+zero, magicBits+lo), magicBits+hi))
}

// half rounds t to the 11 bits of a float16, ties to even. Below the normal
// range of float16 it keeps more bits, which no code depends on.
func half(t float32) float32 {
	b := math.Float32bits(t)
	return math.Float32frombits((b + 0xfff + b>>13&1) &^ 0x1fff)
}

// zeroPoint returns the value of a zero point of codes lo … hi, stored as a
// code is.
func zeroPoint(z byte, lo int32) int32 { return int32(z-byte(lo)) + lo }

// QuantizeBlock sets q[i] to x[i]/scale rounded to an integer, ties to even,
// plus zero, clamped to lo … hi. No x[i]/scale is NaN.
func QuantizeBlock(q []byte, x []float32, scale float32, zero, lo, hi int32) {
	q = q[:len(x)]
	for i, v := range x {
		q[i] = code(v/scale, zero, lo, hi)
	}
}

// QuantizeBlockHalf is QuantizeBlock with x[i]/scale rounded to float16 first.
func QuantizeBlockHalf(q []byte, x []float32, scale float32, zero, lo, hi int32) {
	q = q[:len(x)]
	for i, v := range x {
		q[i] = code(half(v/scale), zero, lo, hi)
	}
}

// QuantizeColumns quantizes each row of x as QuantizeBlock does, with a scale
// for each column.
func QuantizeColumns(q []byte, x, scale []float32, zero, lo, hi int32) {
	for ; len(x) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := x[:len(scale)], q[:len(scale)]
		for i, s := range scale {
			out[i] = code(row[i]/s, zero, lo, hi)
		}
	}
}

// QuantizeColumnsHalf is QuantizeColumns with x/scale rounded to float16 first.
func QuantizeColumnsHalf(q []byte, x, scale []float32, zero, lo, hi int32) {
	for ; len(x) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := x[:len(scale)], q[:len(scale)]
		for i, s := range scale {
			out[i] = code(half(row[i]/s), zero, lo, hi)
		}
	}
}

// QuantizeColumnsZero is QuantizeColumns with a zero point for each column.
func QuantizeColumnsZero(q []byte, x, scale []float32, zero []byte, lo, hi int32) {
	zero = zero[:len(scale)]
	for ; len(x) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := x[:len(scale)], q[:len(scale)]
		for i, s := range scale {
			out[i] = code(row[i]/s, zeroPoint(zero[i], lo), lo, hi)
		}
	}
}

// QuantizeColumnsZeroHalf is QuantizeColumnsZero with x/scale rounded to
// float16 first.
func QuantizeColumnsZeroHalf(q []byte, x, scale []float32, zero []byte, lo, hi int32) {
	zero = zero[:len(scale)]
	for ; len(x) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := x[:len(scale)], q[:len(scale)]
		for i, s := range scale {
			out[i] = code(half(row[i]/s), zeroPoint(zero[i], lo), lo, hi)
		}
	}
}

// DequantizeBlock sets x[i] to (q[i] - zero) * scale. lo is the least code: 0
// if codes are unsigned.
func DequantizeBlock(x []float32, q []byte, scale float32, zero, lo int32) {
	x = x[:len(q)]
	for i, c := range q {
		x[i] = float32(zeroPoint(c, lo)-zero) * scale
	}
}

// DequantizeColumns dequantizes each row of q as DequantizeBlock does, with a
// scale for each column.
func DequantizeColumns(x []float32, q []byte, scale []float32, zero, lo int32) {
	for ; len(q) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := q[:len(scale)], x[:len(scale)]
		for i, s := range scale {
			out[i] = float32(zeroPoint(row[i], lo)-zero) * s
		}
	}
}

// DequantizeColumnsZero is DequantizeColumns with a zero point for each column.
func DequantizeColumnsZero(x []float32, q []byte, scale []float32, zero []byte, lo int32) {
	zero = zero[:len(scale)]
	for ; len(q) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := q[:len(scale)], x[:len(scale)]
		for i, s := range scale {
			out[i] = float32(zeroPoint(row[i], lo)-zeroPoint(zero[i], lo)) * s
		}
	}
}
