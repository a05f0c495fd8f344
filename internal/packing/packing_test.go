package packing

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/int4"
)

// highFirst stands for codes of four bits, the first in the high bits of its byte.
const highFirst = -4

// Codes written in any pieces and any order give the bytes of packing them all.
func TestWriter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, bits := range []int{2, 4, 8, highFirst} {
		high := bits == highFirst
		if high {
			bits = 4
		}
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
			codes := Codes{bits, InOrder(1, int64(n), 1)}
			codes.HighFirst = high
			p, sums := NewWriter(io.NewOffsetWriter(f, 3), codes), make([]uint32, len(cuts))
			for _, i := range r.Perm(len(cuts)) {
				end := n
				if i+1 < len(cuts) {
					end = cuts[i+1]
				}
				if err := p.Write(make([]byte, n), q[cuts[i]:end], int64(cuts[i]), &sums[i]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range cuts {
				end := int64(n)
				if i+1 < len(cuts) {
					end = int64(cuts[i+1])
				}
				at := int64(cuts[i])
				sum, err := codes.SumRuns(0, new([]byte), io.NewSectionReader(f, 3, int64(n)), slices.Values([]Run{{0, at, end - at}}))
				if err != nil || sum != sums[i] {
					t.Fatalf("%d bits, %d codes from %d to %d: checksum %x, written %x, %v", bits, n, at, end, sum, sums[i], err)
				}
			}
			f.Close()
			want := make([]byte, 3+int4.PackedLen(n, bits))
			int4.Pack(want[3:], q, bits)
			if high {
				swapHalves(want[3:])
			}
			if got, _ := os.ReadFile(f.Name()); !bytes.Equal(got, want) {
				t.Fatalf("%d bits, %d codes, cut at %v: %x, want %x", bits, n, cuts, got, want)
			}
			if len(p.edges) > 0 {
				t.Fatalf("bytes are left over: %v", p.edges)
			}
		}
	}
}

func TestTranspose(t *testing.T) {
	for _, shape := range [][2]int{{1, 1}, {8, 8}, {7, 40}, {40, 7}, {16, 24}, {33, 9}, {9, 33}, {70, 81}} {
		rows, n := shape[0], shape[1]
		src, dst := make([]byte, rows*n), make([]byte, rows*n)
		for i := range src {
			src[i] = byte(i ^ i>>8)
		}
		Transpose(dst, src, rows, n)
		for r := range rows {
			for c := range n {
				if got, want := dst[c*rows+r], src[r*n+c]; got != want {
					t.Fatalf("%d × %d: column %d, row %d is %d, want %d", rows, n, c, r, got, want)
				}
			}
		}
	}
}

func BenchmarkTransposeBytes(b *testing.B) {
	const rows, n = 1024, 2048
	src, dst := make([]byte, rows*n), make([]byte, rows*n)
	b.SetBytes(rows * n)
	for b.Loop() {
		Transpose(dst, src, rows, n)
	}
}
