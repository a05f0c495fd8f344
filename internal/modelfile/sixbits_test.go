package modelfile

import (
	"bytes"
	"testing"
)

// Codes are packed into the same bytes in one read and in short ones.
func TestSixBits(t *testing.T) {
	codes := make([]byte, 103)
	want := make([]byte, (6*len(codes)+7)/8)
	for i := range codes {
		codes[i] = byte(i*37%64) | 0xc0 // other bits are ignored
		for bit := range 6 {
			want[(6*i+bit)/8] |= codes[i] >> bit & 1 << ((6*i + bit) % 8)
		}
	}
	s := sixBits{Computed(bytes.NewReader(codes), int64(len(codes)))}
	for from := range want {
		for n := 1; n <= len(want)-from; n++ {
			got := make([]byte, n)
			if k, err := s.ReadAt(got, int64(from)); k != n || err != nil || !bytes.Equal(got, want[from:from+n]) {
				t.Fatalf("%d bytes from %d: %x, %v, want %x", n, from, got, err, want[from:from+n])
			}
		}
	}
}
