package fp8

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"onnxquant/internal/kernels"
	"onnxquant/quantutil"
)

// BenchmarkWeight does all that a tile of a weight needs: ranges, scales, codes,
// their errors, a checksum of the codes, and packing, as that of package int4 does.
func BenchmarkWeight(b *testing.B) {
	const K, N, block = 128, 4096, 32
	x := make([]float32, K*N)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
	}
	scale := make([]float32, len(x)/block)
	q, packed, y := make([]byte, len(x)), make([]byte, len(x)), make([]float32, len(x))
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	finish := func(q []byte, x, y []float32) {
		kernels.Errors(x, y)
		crc32.Checksum(q, castagnoli)
		copy(packed, q)
	}
	for _, t := range []quantutil.DType{quantutil.Float32, quantutil.Float16} {
		for _, f := range []Format{E4M3FN, E5M2} {
			c := Codec{Format: f, Type: t}
			name := fmt.Sprintf("format=%s/type=%s", f, t)
			b.Run("layout=columns/"+name, func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					for at := 0; at < len(x); at += N * block {
						slab, q, y, s := x[at:at+N*block], q[:N*block], y[:N*block], scale[:N]
						clear(s)
						c.ObserveColumns(nil, s, slab)
						c.Scales(s, nil, nil, s)
						c.EncodeColumns(q, slab, s, nil)
						c.DecodeColumns(y, q, s, nil)
						finish(q, slab, y)
					}
				}
			})
			b.Run("layout=rows/"+name, func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					clear(scale)
					c.ObserveBlocks(nil, scale, x, K, block)
					c.Scales(scale, nil, nil, scale)
					c.EncodeBlocks(q, x, scale, nil, K, block)
					c.DecodeBlocks(y, q, scale, nil, K, block)
					finish(q, x, y)
				}
			})
		}
	}
}
