package int4

import (
	"fmt"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/testing/codectest"
)

// Copying the tile, and nothing else, goes beside the work on it: what memory allows.
func BenchmarkWeight(b *testing.B) {
	b.Run("copy", func(b *testing.B) {
		x := codectest.Tile()
		y := make([]float32, len(x))
		b.SetBytes(int64(4 * len(x)))
		for b.Loop() {
			copy(y, x)
		}
	})
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, zp := range []bool{false, true} {
			for _, bits := range []int{2, 4, 8} {
				c := Codec{Bits: bits, Signed: !zp, ZeroPoint: zp, Type: t}
				for _, block := range []int{128, 32} {
					name := fmt.Sprintf("bits=%d/zero=%t/type=%s/block=%d", bits, zp, t, block)
					codectest.Benchmark(b, name, c, block, true, func(packed, q []byte) { Pack(packed, q, bits) })
				}
			}
		}
	}
}
