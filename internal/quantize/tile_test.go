package quantize

import "testing"

// Tiles and their chunks visit each element and each scale of a weight exactly
// once, whatever its shape, and a chunk is no larger than the limit unless a
// row has to be.
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
