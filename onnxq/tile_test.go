package onnxq

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/int4"
)

// Tiles and their chunks visit each element and each scale of a weight exactly
// once, whatever its shape, and a chunk is no larger than the limit unless a
// row has to be.
func TestTilesCoverWeight(t *testing.T) {
	for _, shape := range [][3]int64{{1, 1, 1}, {1, 7, 1}, {5, 33, 1}, {1, 33, 7}, {3, 10, 4}, {2, 64, 1500}, {1, 3000, 1}, {2, 5, 2049}} {
		for _, block := range []int64{2, 3, 16, 32, 10000} {
			for _, limit := range []int64{1, 8, 100, 1000, 1 << 20} {
				w := &weight{d: &decision{}, outer: shape[0], k: shape[1], inner: shape[2], block: block}
				w.blocks = (w.k-1)/w.block + 1
				elements := make([]int, shape[0]*shape[1]*shape[2])
				scales := make([]int, w.outer*w.blocks*w.inner)
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
								elements[c.off+r*w.inner+i]++
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

// Codes written in any pieces and any order give the bytes of packing them all.
func TestPackedWriter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, bits := range []int{2, 4, 8} {
		for range 200 {
			n := 1 + r.IntN(60)
			q := make([]byte, n)
			for i := range q {
				q[i] = byte(r.IntN(1 << bits))
			}
			var cuts []int
			for at := 0; at < n; at += 1 + r.IntN(9) {
				cuts = append(cuts, at)
			}
			f, err := os.Create(filepath.Join(t.TempDir(), "codes"))
			if err != nil {
				t.Fatal(err)
			}
			p := &packedWriter{w: f, base: 3, packing: packing{bits, stored{outer: 1, k: int64(n), inner: 1, pitch: int64(n)}}}
			for _, i := range r.Perm(len(cuts)) {
				end := n
				if i+1 < len(cuts) {
					end = cuts[i+1]
				}
				if err := p.write(make([]byte, n), q[cuts[i]:end], int64(cuts[i]), new(uint32)); err != nil {
					t.Fatal(err)
				}
			}
			f.Close()
			want := make([]byte, 3+int4.PackedLen(n, bits))
			int4.Pack(want[3:], q, bits)
			if got, _ := os.ReadFile(f.Name()); !bytes.Equal(got, want) {
				t.Fatalf("%d bits, %d codes, cut at %v: %x, want %x", bits, n, cuts, got, want)
			}
			if len(p.edges) > 0 {
				t.Fatalf("bytes are left over: %v", p.edges)
			}
		}
	}
}
