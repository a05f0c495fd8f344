package kernels

// DequantizeBlock sets x[i] to (q[i] - zero) * scale. lo is the least code: 0
// if codes are unsigned.
func DequantizeBlock(x []float32, q []byte, scale float32, zero, lo int32) {
	n := dequantizeBlock(x, q, scale, zero, lo)
	x, q = x[n:len(q)], q[n:]
	for i, c := range q {
		x[i] = float32(zeroPoint(c, lo)-zero) * scale
	}
}

// DequantizeColumns dequantizes each row of q as DequantizeBlock does, with a
// scale for each column.
func DequantizeColumns(x []float32, q []byte, scale []float32, zero, lo int32) {
	for from := dequantizeColumns(x, q, scale, nil, zero, lo); from < len(scale) && len(q) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := q[:len(scale)], x[:len(scale)]
		for i := from; i < len(row); i++ {
			out[i] = float32(zeroPoint(row[i], lo)-zero) * scale[i]
		}
	}
}

// DequantizeColumnsZero is DequantizeColumns with a zero point for each column.
func DequantizeColumnsZero(x []float32, q []byte, scale []float32, zero []byte, lo int32) {
	zero = zero[:len(scale)]
	for from := dequantizeColumns(x, q, scale, zero, 0, lo); from < len(scale) && len(q) > 0; x, q = x[len(scale):], q[len(scale):] {
		row, out := q[:len(scale)], x[:len(scale)]
		for i := from; i < len(row); i++ {
			out[i] = float32(zeroPoint(row[i], lo)-zeroPoint(zero[i], lo)) * scale[i]
		}
	}
}
