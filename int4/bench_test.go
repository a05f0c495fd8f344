package int4

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"onnxquant/quantutil"
)

// BenchmarkWeight does all that a slab of a weight needs: ranges, scales, codes
// and packing. K and N are the rows and columns of [K, N], or of its transpose.
func BenchmarkWeight(b *testing.B) {
	const K, N, block = 128, 2048, 128
	r := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, K*N)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
	}
	lo, hi, scale, zero := make([]float32, N), make([]float32, N), make([]float32, N), make([]byte, N)
	q := make([]byte, len(x))
	packed := make([]byte, len(x))
	for _, t := range []quantutil.DType{quantutil.Float32, quantutil.Float16} {
		for _, zp := range []bool{false, true} {
			for _, bits := range []int{2, 4, 8} {
				c := Codec{Bits: bits, Signed: !zp, ZeroPoint: zp, Type: t}
				name := fmt.Sprintf("bits=%d/zero=%t/type=%s", bits, zp, t)
				b.Run("layout=columns/"+name, func(b *testing.B) {
					b.SetBytes(int64(4 * len(x)))
					for b.Loop() {
						clear(lo)
						clear(hi)
						c.ObserveColumns(lo, hi, x)
						c.Scales(scale, zero, lo, hi)
						c.EncodeColumns(q, x, scale, zero)
						Pack(packed, q, bits)
					}
				})
				b.Run("layout=rows/"+name, func(b *testing.B) {
					b.SetBytes(int64(4 * len(x)))
					for b.Loop() {
						clear(lo)
						clear(hi)
						c.ObserveBlocks(lo, hi, x, K, block)
						c.Scales(scale, zero, lo, hi)
						c.EncodeBlocks(q, x, scale, zero, K, block)
						Pack(packed, q, bits)
					}
				})
			}
		}
	}
}
