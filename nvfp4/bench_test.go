package nvfp4

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

var worst float64

// BenchmarkWeight does all that a tile of a weight needs: ranges, scales, codes,
// their errors, a checksum of the codes, and packing, as that of package int4 does.
func BenchmarkWeight(b *testing.B) {
	const K, N = 128, 4096
	x := make([]float32, K*N)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
	}
	scale := make([]float32, len(x)/BlockSize)
	q, packed := make([]byte, len(x)), make([]byte, len(x))
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	finish := func(q []byte) {
		crc32.Checksum(q, castagnoli)
		kernels.Pack4(packed, q)
	}
	for _, t := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		c := Codec{TensorScale: 1e-4, Type: t}
		name := fmt.Sprintf("type=%s", t)
		b.Run("layout=columns/"+name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				for at := 0; at < len(x); at += N * BlockSize {
					slab, q, s := x[at:at+N*BlockSize], q[:N*BlockSize], scale[:N]
					clear(s)
					c.ObserveColumns(nil, s, slab)
					c.Scales(s, nil, nil, s)
					worst = c.QuantizeColumns(q, slab, s, nil).MaxAbs
					finish(q)
				}
			}
		})
		b.Run("layout=rows/"+name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				clear(scale)
				c.ObserveBlocks(nil, scale, x, K, BlockSize)
				c.Scales(scale, nil, nil, scale)
				worst = c.QuantizeBlocks(q, x, scale, nil, K, BlockSize).MaxAbs
				finish(q)
			}
		})
	}
}
