package kernels

import (
	"fmt"
	"os"
	"testing"
)

// countedTable is made before anything is counted.
var countedTable = NewNearest(nearestTables["sixteen"])

// TestCounted runs each loop between two marks for test/bench/instructions.py, which counts the instructions.
func TestCounted(t *testing.T) {
	if os.Getenv("COUNTED") == "" {
		t.Skip("for make instructions")
	}
	d := newBenchData(3)
	for _, c := range counted {
		fmt.Println("loop:", c.name)
		mark()
		c.loop(d, len(d.x))
		mark()
	}
}

// mark is an address in what the emulator names.
//
//go:noinline
func mark() {}

// counted are loops over n elements, for test/bench/instructions.py.
var counted = []struct {
	name string
	loop func(d *benchData, n int)
}{
	{"MultiplyTile, for each product", func(d *benchData, n int) {
		k := n / (TileRows * TileColumns)
		MultiplyTile(d.y, TileColumns, d.y, TileColumns, d.x[:k*TileRows], d.x[:k*TileColumns])
	}},
	{"AddMultiple", func(d *benchData, n int) { AddMultiple(d.y, 0.5, d.x) }},
	{"Dot", func(d *benchData, n int) { Dot(d.x, d.y) }},
	{"AbsMaxBlocks, 128", func(d *benchData, n int) { AbsMaxBlocks(d.hi, d.x, n, 128) }},
	{"AbsMaxColumns", func(d *benchData, n int) { AbsMaxColumns(d.hi[:n/4], d.x) }},
	{"RangeBlocks, 128", func(d *benchData, n int) { RangeBlocks(d.lo, d.hi, d.x, n, 128) }},
	{"RangeColumns", func(d *benchData, n int) { RangeColumns(d.lo[:n/4], d.hi[:n/4], d.x) }},
	{"QuantizeBlocks, 128", quantizesBlocks(128, Float32)},
	{"QuantizeBlocks, 32", quantizesBlocks(32, Float32)},
	{"QuantizeBlocks, 128, float16", quantizesBlocks(128, Float16)},
	{"QuantizeColumns", func(d *benchData, n int) {
		QuantizeColumns(d.q, d.x, d.scale[:n/4], d.zero[:1], Format{-8, 7, Float32}, &d.sums)
	}},
	{"QuantizeColumns, zero points", func(d *benchData, n int) {
		QuantizeColumns(d.q, d.x, d.scale[:n/4], d.zero[:n/4], Format{-8, 7, Float32}, &d.sums)
	}},
	{"QuantizeFloatBlocks, 32, E4M3FN", func(d *benchData, n int) {
		QuantizeFloatBlocks(d.q, d.x, d.scale, 1, n, 32, E4M3FN, Float32, &d.sums)
	}},
	{"QuantizeNearestBlocks, 64", func(d *benchData, n int) {
		QuantizeNearestBlocks(d.q, d.x, d.scale, n, 64, countedTable, Float32, &d.sums)
	}},
	{"RoundUpColumns", func(d *benchData, n int) { RoundUpColumns(d.q, d.x, d.scale[:n/4], d.y[:n/4], 15, 0) }},
	{"DequantizeColumns", func(d *benchData, n int) { DequantizeColumns(d.y, d.q, d.scale[:n/4], 0, -8) }},
	{"Errors", func(d *benchData, n int) { d.sums.Add(d.x, d.y) }},
	{"Pack4", func(d *benchData, n int) { Pack4(d.packed, d.q) }},
	{"Pack2", func(d *benchData, n int) { Pack2(d.packed, d.q) }},
	{"Unpack4", func(d *benchData, n int) { Unpack4(d.q, d.packed, true) }},
	{"Unpack2", func(d *benchData, n int) { Unpack2(d.q, d.packed, true) }},
	{"GridSearch, blocks of 32, for each try", func(d *benchData, n int) {
		s := GridSearch{Steps: 15, ToZero: 15}
		fill(s.PerUnit[:], 1)
		fill(s.First[:], 4)
		fill(s.Distance[:], 0.5)
		const tries = 24 // 16 at first, 2 beside, 6 around
		for range n / (32 * GridLanes * tries) {
			s.Find(d.x[:32*GridLanes], false)
		}
	}},
	{"AddGridErrors, blocks of 32", func(d *benchData, n int) {
		var e [GridLanes]float64
		var zero [GridLanes]byte
		scale := (*[GridLanes]float32)(d.scale)
		for at := 0; at < n; at += 32 * GridLanes {
			AddGridErrors(&e, d.x[at:][:32*GridLanes], scale, scale, &zero, Format{-8, 7, Float32})
		}
	}},
	{"TryFloat, blocks of 32, E2M1, for each try", func(d *benchData, n int) {
		var e [16]float64
		for range n / (32 * len(e)) {
			TryFloat(e[:], d.x[:32], d.scale[:len(e)], 1, SignlessE2M1, Float32)
		}
	}},
	{"AffineSearch, blocks of 32, for each try", func(d *benchData, n int) {
		s := AffineSearch{Block: 32, Last: 15, First: -1, Step: 0.1, Tries: 24, Weighting: Squares}
		fits := AffineFits{d.lo[:16], d.hi[:16], d.scale[:16], d.y[:16]}
		s.Find(fits, d.x[:n/s.Tries], nil)
	}},
	{"SymmetricSearch, blocks of 32, for each try", func(d *benchData, n int) {
		s := SymmetricSearch{Block: 32, Half: 8, Weighting: Squares}
		s.Find(d.lo[:20], d.hi[:20], d.x[:20*32], nil) // about n elements in 19 tries
	}},
	{"FromFloat16", func(d *benchData, n int) { FromFloat16(d.y, Bytes(d.x)[:2*n]) }},
	{"ToFloat16", func(d *benchData, n int) { ToFloat16(Bytes(d.y)[:2*n], d.x) }},
	{"Exp", func(d *benchData, n int) { Exp(d.y, d.x) }},
	{"Erf", func(d *benchData, n int) { Erf.Apply(d.y, d.x) }},
	{"Add", func(d *benchData, n int) { Add(d.y, d.x, d.x) }},
}

func quantizesBlocks(block int, t Type) func(d *benchData, n int) {
	return func(d *benchData, n int) {
		QuantizeBlocks(d.q, d.x, d.scale, d.zero, n, block, Format{-8, 7, t}, &d.sums)
	}
}
