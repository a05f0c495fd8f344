// Package codectest has the benchmark that the packages of number formats share.
package codectest

import (
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"

	"onnxquant/formats/errstat"
)

// Codec is what the benchmark calls; see quantize.Codec.
type Codec interface {
	ObserveColumns(lo, hi, x []float32)
	ObserveBlocks(lo, hi, x []float32, k, block int)
	Scales(scale []float32, zero []byte, lo, hi []float32) bool
	QuantizeColumns(q []byte, x, scale []float32, zero []byte) errstat.Stats
	QuantizeBlocks(q []byte, x, scale []float32, zero []byte, k, block int) errstat.Stats
}

const k, n = 128, 4096

// Tile returns the [128, 4096] elements that are quantized.
var Tile = sync.OnceValue(func() []float32 {
	x := make([]float32, k*n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.05
	}
	return x
})

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	worst      float64
)

// Benchmark does all that a tile of a weight needs: ranges, scales, codes, their errors, a
// checksum of the codes, and packing; once with blocks in columns and once in rows. lower
// says whether the codec takes both ends of a range, and not only amax.
func Benchmark(b *testing.B, name string, c Codec, block int, lower bool, pack func(packed, q []byte)) {
	x := Tile()
	blocks := len(x) / block
	var lo []float32
	var zero []byte
	if lower {
		lo, zero = make([]float32, blocks), make([]byte, blocks)
	}
	hi, scale := make([]float32, blocks), make([]float32, blocks)
	q, packed := make([]byte, len(x)), make([]byte, len(x))
	reset := func() {
		clear(lo)
		clear(hi)
	}
	finish := func(q []byte) {
		crc32.Checksum(q, castagnoli)
		pack(packed, q)
	}
	b.Run("layout=rows/"+name, func(b *testing.B) {
		b.SetBytes(int64(4 * len(x)))
		for b.Loop() {
			reset()
			c.ObserveBlocks(lo, hi, x, k, block)
			c.Scales(scale, zero, lo, hi)
			worst = c.QuantizeBlocks(q, x, scale, zero, k, block).MaxAbs
			finish(q)
		}
	})
	if lower {
		lo, zero = lo[:n], zero[:n]
	}
	hi, scale = hi[:n], scale[:n]
	b.Run("layout=columns/"+name, func(b *testing.B) {
		b.SetBytes(int64(4 * len(x)))
		for b.Loop() {
			for at := 0; at < len(x); at += n * block {
				slab, q := x[at:at+n*block], q[:n*block]
				reset()
				c.ObserveColumns(lo, hi, slab)
				c.Scales(scale, zero, lo, hi)
				worst = c.QuantizeColumns(q, slab, scale, zero).MaxAbs
				finish(q)
			}
		}
	})
}
