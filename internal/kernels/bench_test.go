package kernels

import (
	"math/rand/v2"
	"testing"
)

const (
	benchRows    = 128
	benchColumns = 1024
)

func benchInput() (x, scale []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	x = make([]float32, benchRows*benchColumns)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
	}
	scale = make([]float32, benchColumns)
	AbsMaxColumns(scale, x)
	for i := range scale {
		scale[i] /= 7
	}
	return x, scale
}

// bench runs a loop over x and reports bytes of x.
func bench(b *testing.B, name string, x []float32, loop func()) {
	b.Run(name+"/impl=go", func(b *testing.B) {
		b.SetBytes(int64(4 * len(x)))
		for b.Loop() {
			loop()
		}
	})
}

func BenchmarkKernel(b *testing.B) {
	x, scale := benchInput()
	q := make([]byte, len(x))
	packed := make([]byte, len(x)/2)
	zero := make([]byte, benchColumns)
	lo, hi := make([]float32, benchColumns), make([]float32, benchColumns)
	y := make([]float32, len(x))
	const s = 0.02

	bench(b, "Copy", x, func() { copy(y, x) })
	bench(b, "AbsMax", x, func() { hi[0] = AbsMax(0, x) })
	bench(b, "AbsMaxColumns", x, func() { AbsMaxColumns(hi, x) })
	bench(b, "Range", x, func() { lo[0], hi[0] = Range(0, 0, x) })
	bench(b, "RangeColumns", x, func() { RangeColumns(lo, hi, x) })
	bench(b, "QuantizeBlock", x, func() { QuantizeBlock(q, x, s, 0, -8, 7) })
	bench(b, "QuantizeBlockHalf", x, func() { QuantizeBlockHalf(q, x, s, 0, -8, 7) })
	bench(b, "QuantizeColumns", x, func() { QuantizeColumns(q, x, scale, 0, -8, 7) })
	bench(b, "QuantizeColumnsHalf", x, func() { QuantizeColumnsHalf(q, x, scale, 0, -8, 7) })
	bench(b, "QuantizeColumnsZero", x, func() { QuantizeColumnsZero(q, x, scale, zero, 0, 15) })
	bench(b, "QuantizeColumnsZeroHalf", x, func() { QuantizeColumnsZeroHalf(q, x, scale, zero, 0, 15) })
	bench(b, "Pack4", x, func() { Pack4(packed, q) })
	bench(b, "Pack2", x, func() { Pack2(packed, q) })
	bench(b, "Unpack4", x, func() { Unpack4(q, packed, true) })
	bench(b, "Unpack2", x, func() { Unpack2(q, packed, true) })
	bench(b, "DequantizeBlock", x, func() { DequantizeBlock(y, q, s, 0, -8) })
	bench(b, "DequantizeColumns", x, func() { DequantizeColumns(y, q, scale, 0, -8) })
	bench(b, "DequantizeColumnsZero", x, func() { DequantizeColumnsZero(y, q, scale, zero, -8) })
	bench(b, "Errors", x, func() { Errors(x, y) })
}
