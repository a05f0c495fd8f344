package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

const (
	benchColumns = 4096
	benchBlock   = 128
)

// benchData is a matrix and all that loops over it read or write.
type benchData struct {
	x, y, lo, hi, scale []float32
	q, packed, zero     []byte
	sums                ErrorSums
}

func newBenchData(rows int) *benchData {
	n := rows * benchColumns
	r := rand.New(rand.NewPCG(1, 2))
	d := &benchData{
		x: make([]float32, n), y: make([]float32, n),
		q: make([]byte, n), packed: make([]byte, n),
	}
	for i := range d.x {
		d.x[i] = float32(r.NormFloat64()) * 0.05
	}
	// As many as rows of columns or blocks of rows need.
	m := max(benchColumns, n/benchBlock)
	d.lo, d.hi, d.scale, d.zero = make([]float32, m), make([]float32, m), make([]float32, m), make([]byte, m)
	for i := range d.scale {
		d.scale[i] = 0.02
	}
	return d
}

// benchAll runs a loop in all implementations over a matrix that fits the cache
// nearest to a core and over one that fits none, and reports bytes of float32.
func benchAll(b *testing.B, loop func(d *benchData)) {
	for _, rows := range []int{16, 4096} {
		d := newBenchData(rows)
		for name := range implementations(b) {
			b.Run(fmt.Sprintf("impl=%s/n=%dKiB", name, 4*len(d.x)>>10), func(b *testing.B) {
				b.SetBytes(int64(4 * len(d.x)))
				for b.Loop() {
					loop(d)
				}
			})
		}
	}
}

// What memory allows.
func BenchmarkCopy(b *testing.B) {
	benchAll(b, func(d *benchData) { copy(d.y, d.x) })
}

func BenchmarkAbsMaxColumns(b *testing.B) {
	benchAll(b, func(d *benchData) { AbsMaxColumns(d.hi[:benchColumns], d.x) })
}

func BenchmarkAbsMaxBlocks(b *testing.B) {
	benchAll(b, func(d *benchData) { AbsMaxBlocks(d.hi, d.x, benchColumns, benchBlock) })
}

func BenchmarkRangeColumns(b *testing.B) {
	benchAll(b, func(d *benchData) { RangeColumns(d.lo[:benchColumns], d.hi[:benchColumns], d.x) })
}

func BenchmarkRangeBlocks(b *testing.B) {
	benchAll(b, func(d *benchData) { RangeBlocks(d.lo, d.hi, d.x, benchColumns, benchBlock) })
}

func benchQuantizeColumns(b *testing.B, zeros int, t Type) {
	benchAll(b, func(d *benchData) {
		QuantizeColumns(d.q, d.x, d.scale[:benchColumns], d.zero[:zeros], Format{-8, 7, t}, &d.sums)
	})
}

func BenchmarkQuantizeColumns(b *testing.B)         { benchQuantizeColumns(b, 1, Float32) }
func BenchmarkQuantizeColumnsZeros(b *testing.B)    { benchQuantizeColumns(b, benchColumns, Float32) }
func BenchmarkQuantizeColumnsFloat16(b *testing.B)  { benchQuantizeColumns(b, 1, Float16) }
func BenchmarkQuantizeColumnsBFloat16(b *testing.B) { benchQuantizeColumns(b, 1, BFloat16) }

func benchQuantizeBlocks(b *testing.B, block int, t Type) {
	benchAll(b, func(d *benchData) {
		for len(d.scale) < len(d.x)/block {
			d.scale, d.zero = append(d.scale, d.scale...), append(d.zero, d.zero...)
		}
		QuantizeBlocks(d.q, d.x, d.scale, d.zero, benchColumns, block, Format{-8, 7, t}, &d.sums)
	})
}

func BenchmarkQuantizeBlocks(b *testing.B)        { benchQuantizeBlocks(b, benchBlock, Float32) }
func BenchmarkQuantizeBlocksOf32(b *testing.B)    { benchQuantizeBlocks(b, 32, Float32) }
func BenchmarkQuantizeBlocksFloat16(b *testing.B) { benchQuantizeBlocks(b, benchBlock, Float16) }

func benchQuantizeFloat(b *testing.B, f *MiniFloat) {
	scale := func(d *benchData) []float32 {
		fill(d.scale, 0.2/f.Values[f.Top])
		return d.scale
	}
	b.Run("columns", func(b *testing.B) {
		benchAll(b, func(d *benchData) { QuantizeFloatColumns(d.q, d.x, scale(d)[:benchColumns], 1, f, Float32, &d.sums) })
	})
	b.Run("blocks", func(b *testing.B) {
		benchAll(b, func(d *benchData) {
			QuantizeFloatBlocks(d.q, d.x, scale(d), 1, benchColumns, benchBlock, f, Float32, &d.sums)
		})
	})
}

func BenchmarkQuantizeE4M3FN(b *testing.B) { benchQuantizeFloat(b, E4M3FN) }
func BenchmarkQuantizeE2M1(b *testing.B)   { benchQuantizeFloat(b, E2M1) }

func BenchmarkQuantizeNearest(b *testing.B) {
	n := NewNearest(nearestTables["sixteen"])
	benchAll(b, func(d *benchData) {
		fill(d.scale, 0.3)
		QuantizeNearestBlocks(d.q, d.x, d.scale, benchColumns, benchBlock, n, Float32, &d.sums)
	})
}

func BenchmarkErrors(b *testing.B) {
	benchAll(b, func(d *benchData) { d.sums.Add(d.x, d.y) })
}

func BenchmarkPack4(b *testing.B)   { benchAll(b, func(d *benchData) { Pack4(d.packed, d.q) }) }
func BenchmarkPack2(b *testing.B)   { benchAll(b, func(d *benchData) { Pack2(d.packed, d.q) }) }
func BenchmarkUnpack4(b *testing.B) { benchAll(b, func(d *benchData) { Unpack4(d.q, d.packed, true) }) }
func BenchmarkUnpack2(b *testing.B) { benchAll(b, func(d *benchData) { Unpack2(d.q, d.packed, true) }) }

func BenchmarkFromFloat16(b *testing.B) {
	benchAll(b, func(d *benchData) { FromFloat16(d.y[:len(d.packed)/2], d.packed) })
}

func BenchmarkDequantizeColumns(b *testing.B) {
	benchAll(b, func(d *benchData) { DequantizeColumns(d.y, d.q, d.scale[:benchColumns], 0, -8) })
}
