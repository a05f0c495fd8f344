package modelfile

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Any range of bytes, also one that begins within an element, is that of the whole content.
func TestElementsRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	from := make([]byte, 4*(3*step+17))
	for i := range from {
		from[i] = byte(rng.Uint32())
	}
	for _, out := range []int64{2, 4, 8} {
		for _, alike := range []bool{false, true} {
			e := &Elements{From: Computed(bytes.NewReader(from), int64(len(from))), In: 4, Out: out, Alike: alike,
				Make: func(dst, raw []byte, _ []float32, first int64) {
					for i := range int64(len(raw) / 4) {
						for j := range out {
							dst[i*out+j] = raw[4*i+j%4] + byte(j)
							if !alike {
								dst[i*out+j] += byte(first + i)
							}
						}
					}
				}}
			want := make([]byte, e.Payload().Size())
			e.Make(want, from, nil, 0)
			for range 200 {
				at := rng.IntN(len(want))
				n := rng.IntN(len(want) - at)
				got := make([]byte, n)
				if k, err := e.ReadAt(got, int64(at)); k != n || err != nil || !bytes.Equal(got, want[at:at+n]) {
					t.Fatalf("%d bytes: from %d to %d: %d, %v", out, at, at+n, k, err)
				}
			}
			if n, err := e.ReadAt(make([]byte, 8), int64(len(want))-4); n != 4 || err == nil {
				t.Errorf("%d bytes: reading beyond the end returns %d, %v", out, n, err)
			}
			for _, rows := range [][4]int64{{0, 5, 40, 104}, {6, 3, 7, 21}, {0, 2, out*step + 8, out*step + 8}, {8, 100, out, 304}} {
				off, count, n, stride := rows[0], rows[1], rows[2], rows[3]
				got := make([]byte, count*n)
				if err := e.ReadRows(got, off, count, n, stride); err != nil {
					t.Fatalf("%d bytes: rows %v: %v", out, rows, err)
				}
				for i := range count {
					if at := off + i*stride; !bytes.Equal(got[i*n:(i+1)*n], want[at:at+n]) {
						t.Errorf("%d bytes: row %d of %v differs", out, i, rows)
					}
				}
			}
		}
	}
}
