package quantize

import (
	"bytes"
	"context"
	"math/rand/v2"
	"reflect"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ggml"
	"onnxquant/int4"
	"onnxquant/internal/kernels"
	"onnxquant/internal/packing"
	"onnxquant/spec"
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

// A matrix that is read as [N,K] has the same codes, scales and zero points as one that is read as [K,N].
func TestReadTurned(t *testing.T) {
	r, across := rand.New(rand.NewPCG(3, 4)), false
	for _, shape := range [][2]int64{{1, 1}, {40, 7}, {7, 40}, {33, 301}, {512, 96}, {1500, 801}, {65533, 20}, {600, 2000}} {
		k, n := shape[0], shape[1]
		down, rows := make([]float32, k*n), make([]float32, k*n)
		for i := range k {
			for j := range n {
				v := float32(r.NormFloat64())
				down[i*n+j], rows[j*k+i] = v, v
			}
		}
		for _, block := range []int64{16, 32, k} {
			if block > k {
				continue
			}
			codec := int4.Codec{Bits: 4, ZeroPoint: block == 16, Signed: block != 16}
			weight := func(x []float32) *Weight {
				w := &Weight{Source: &elements{x}, DType: dtype.Float32, Outer: 1, K: k, Inner: n, Block: block, Algorithm: spec.RTN, Codec: codec, Bits: 4, ScaleType: dtype.Float32}
				w.CodesAt, w.ScalesAt = packing.InOrder(1, k, n), packing.InOrder(1, w.Blocks(), n)
				w.ZerosAt = w.ScalesAt
				return w
			}
			want := written(t, weight(down), 1<<20)
			for _, limit := range []int64{8, 100, 3000, 65534, 300_000, 1 << 20} {
				if k*n/limit > 1000 {
					continue
				}
				w := weight(rows)
				if !w.ReadTurned() {
					t.Fatal("not read as [N,K]")
				}
				for tile := range w.tiles(limit) {
					across = across || tile.across(limit)
				}
				if got := written(t, w, limit); !reflect.DeepEqual(got, want) {
					t.Errorf("%d × %d, block %d, limit %d: other bytes", k, n, block, limit)
				}
			}
		}
	}
	if !across {
		t.Error("no tile has strips")
	}
}

// Ranges that are searched, and long columns, are not read so.
func TestNotReadTurned(t *testing.T) {
	for _, w := range []*Weight{
		{K: 64, Range: spec.Range{Kind: spec.RangeMSE}}, {K: longestTurned + 1}, {K: 64, Encoding: &ggml.Encoding{}}, {K: 64, Algorithm: spec.MSE},
	} {
		w.Outer, w.Inner, w.Block = 1, 8, 32
		if w.Codec = (int4.Codec{Bits: 4}); w.Encoding != nil {
			w.Codec = nil
		}
		if w.Algorithm == "" {
			w.Algorithm = spec.RTN
		}
		w.CodesAt, w.ScalesAt = packing.InOrder(1, w.K, 8), packing.InOrder(1, w.Blocks(), 8)
		if w.ZerosAt = w.ScalesAt; w.ReadTurned() {
			t.Errorf("%+v is read as [N,K]", w)
		}
	}
}

// elements are float32 numbers in memory.
type elements struct{ x []float32 }

func (e *elements) ReadRows(dst []byte, off, rows, n, stride int64) error {
	for i := range rows {
		copy(dst[i*n:(i+1)*n], kernels.Bytes(e.x)[off+i*stride:])
	}
	return nil
}

// store is a file in memory.
type store struct{ b []byte }

func (s *store) WriteAt(p []byte, off int64) (int, error) { return copy(s.b[off:], p), nil }

// written returns codes, scales and zero points of a weight, and checks that Written agrees.
func written(t *testing.T, w *Weight, limit int64) [][]byte {
	t.Helper()
	run := NewRun([]*Weight{w}, limit)
	parts := []*store{{make([]byte, (w.Elements()+1)/2)}, {make([]byte, 4*w.ScalesAt.Size())}, {make([]byte, (w.ZerosAt.Size()+1)/2)}}
	run.WriteTo([]Sinks{{Codes: parts[0], Scales: parts[1], Zeros: parts[2]}})
	out := make([]Outcome, len(run.Tiles))
	var b Buffers
	for i := range run.Tiles {
		if err := run.Quantize(context.Background(), &b, i, &out[i], func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range run.Tiles {
		from := Contents{Codes: bytes.NewReader(parts[0].b), Scales: bytes.NewReader(parts[1].b), Zeros: bytes.NewReader(parts[2].b)}
		if same, err := run.Written(&b, i, &out[i], from); err != nil || !same {
			t.Errorf("limit %d: tile %d differs from what was written: %v", limit, i, err)
		}
	}
	return [][]byte{parts[0].b, parts[1].b, parts[2].b}
}
