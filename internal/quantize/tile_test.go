package quantize

import (
	"testing"

	"onnxquant/internal/packing"
)

// Tiles and their chunks visit each element and each scale exactly once, for any shape. A chunk is
// no larger than the limit unless a row is longer.
func TestTilesCoverWeight(t *testing.T) {
	for _, shape := range [][3]int64{{1, 1, 1}, {1, 7, 1}, {5, 33, 1}, {1, 33, 7}, {3, 10, 4}, {2, 64, 1500}, {1, 3000, 1}, {2, 5, 2049}} {
		for _, block := range []int64{2, 3, 16, 32, 10000} {
			for _, limit := range []int64{1, 8, 100, 1000, 1 << 20} {
				w := &Weight{Outer: shape[0], K: shape[1], Inner: shape[2], Block: block}
				elements := make([]int, shape[0]*shape[1]*shape[2])
				scales := make([]int, w.Outer*w.Blocks()*w.Inner)
				for tile := range w.tiles(limit) {
					for i := range tile.scales {
						scales[tile.first+i]++
					}
					for _, c := range tile.chunks(limit) {
						if c.rows*c.n > max(limit, minStripe) {
							t.Errorf("%v block %d limit %d: chunk of %d elements", shape, block, limit, c.rows*c.n)
						}
						for r := range c.rows {
							for i := range c.n {
								elements[c.off+r*w.Inner+i]++
							}
						}
					}
				}
				for i, n := range elements {
					if n != 1 {
						t.Fatalf("%v block %d limit %d: element %d visited %d times", shape, block, limit, i, n)
					}
				}
				for i, n := range scales {
					if n != 1 {
						t.Fatalf("%v block %d limit %d: scale %d visited %d times", shape, block, limit, i, n)
					}
				}
			}
		}
	}
}

// If rows are stored as columns, chunks visit each element once, and so do the bands of strips. A
// strip is part of one matrix, and its bands follow each other.
func TestStripsCoverTransposedRows(t *testing.T) {
	for _, matrix := range [][2]int64{{9, 7}, {1, 40}, {40, 1}, {300, 500}} {
		const matrices = 2
		rows, width := matrix[0], matrix[1]
		size := rows * width
		for _, k := range []int64{matrices * size, size, width} {
			for _, limit := range []int64{1, 8, 100, 3000, 1 << 20} {
				w := &Weight{Outer: matrices * size / k, K: k, Inner: 1, Block: k}
				w.CodesAt = packing.Placement{Outer: matrices, K: rows, Inner: width, Transposed: true, Pitch: rows}
				read, written := make([]int, matrices*size), make([]int, matrices*size)
				for tile := range w.tiles(limit) {
					for _, c := range tile.chunks(limit) {
						for i := range c.n {
							read[c.off+i]++
						}
					}
					for _, strip := range tile.strips(limit) {
						if tile.across(limit) && strip.off/size != (strip.off+(strip.rows-1)*width)/size {
							t.Errorf("%v limit %d: a strip in two matrices", matrix, limit)
						}
						at := strip.off
						for _, c := range tile.bands(strip, limit) {
							if c.off != at || c.n != strip.n || c.rows*c.n > limit {
								t.Errorf("%v limit %d: band %v of strip %v", matrix, limit, c, strip)
							}
							at += c.rows * tile.pitch()
							for r := range c.rows {
								for i := range c.n {
									written[c.off+r*tile.pitch()+i]++
								}
							}
						}
					}
				}
				for i := range read {
					if read[i] != 1 || written[i] != 1 {
						t.Fatalf("%v k %d limit %d: element %d read %d times, written %d times", matrix, k, limit, i, read[i], written[i])
					}
				}
			}
		}
	}
}
