package int4

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
)

// BenchmarkWeight does all that a tile of a weight needs: ranges, scales, codes,
// their errors, a checksum of the codes, and packing. Copying the tile, and
// nothing else, goes beside it: what memory allows.
func BenchmarkWeight(b *testing.B) {
	const K, N = 128, 4096
	x := make([]float32, K*N)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
	}
	b.Run("copy", func(b *testing.B) {
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
					b.Run("layout=columns/"+name, func(b *testing.B) { benchColumns(b, c, x, N, block) })
					b.Run("layout=rows/"+name, func(b *testing.B) { benchRows(b, c, x, K, block) })
				}
			}
		}
	}
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	worst      float64
)

// tile is what the work on a tile needs.
type tile struct {
	lo, hi, scale   []float32
	zero, q, packed []byte
}

func newTile(elements, blocks int) *tile {
	return &tile{
		make([]float32, blocks), make([]float32, blocks), make([]float32, blocks),
		make([]byte, blocks), make([]byte, elements), make([]byte, elements),
	}
}

// benchColumns has blocks in the columns of rows of n elements.
func benchColumns(b *testing.B, c Codec, x []float32, n, block int) {
	t := newTile(len(x), n)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		for at := 0; at < len(x); at += n * block {
			slab, q := x[at:at+n*block], t.q[:n*block]
			clear(t.lo)
			clear(t.hi)
			c.ObserveColumns(t.lo, t.hi, slab)
			c.Scales(t.scale, t.zero, t.lo, t.hi)
			worst = c.QuantizeColumns(q, slab, t.scale, t.zero).MaxAbs
			crc32.Checksum(q, castagnoli)
			Pack(t.packed, q, c.Bits)
		}
	}
}

// benchRows has blocks in rows of k elements.
func benchRows(b *testing.B, c Codec, x []float32, k, block int) {
	t := newTile(len(x), len(x)/block)
	b.SetBytes(int64(4 * len(x)))
	for b.Loop() {
		clear(t.lo)
		clear(t.hi)
		c.ObserveBlocks(t.lo, t.hi, x, k, block)
		c.Scales(t.scale, t.zero, t.lo, t.hi)
		worst = c.QuantizeBlocks(t.q, x, t.scale, t.zero, k, block).MaxAbs
		crc32.Checksum(t.q, castagnoli)
		Pack(t.packed, t.q, c.Bits)
	}
}
