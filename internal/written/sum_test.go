package written

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// Pieces in any order give the sum of the whole.
func TestSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 300 {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(r.Uint32())
		}
		type piece struct{ from, to int }
		var pieces []piece
		for at := 0; at < size; {
			to := at + 1 + r.IntN(size-at)
			pieces = append(pieces, piece{at, to})
			at = to
		}
		r.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
		s := NewSum(int64(size))
		for _, p := range pieces {
			s.Add(content[p.from:p.to], int64(p.from))
		}
		if got, want := s.CRC32(), crc32.ChecksumIEEE(content); got != want {
			t.Fatalf("%d bytes in %d pieces: %08x, want %08x", size, len(pieces), got, want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	piece, s := make([]byte, 64<<10), NewSum(1<<40)
	b.SetBytes(int64(len(piece)))
	for range b.N {
		s.Add(piece, 12345)
	}
}
