package half

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
)

// source returns float32 elements as a payload.
func source(x []float32) *modelfile.Payload {
	raw := make([]byte, 4*len(x))
	dtype.Float32.Encode(raw, x)
	return modelfile.Computed(bytes.NewReader(raw), int64(len(raw)))
}

// Any range of bytes, also one that begins within an element, is that of the whole content.
func TestContentRanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 3*maxStep+17)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for _, to := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		want := make([]byte, 2*len(x))
		to.Encode(want, x)
		c := &content{source(x), to, false, &Tally{}}
		for range 200 {
			from := rng.IntN(len(want))
			n := rng.IntN(len(want) - from)
			got := make([]byte, n)
			if k, err := c.ReadAt(got, int64(from)); k != n || err != nil || !bytes.Equal(got, want[from:from+n]) {
				t.Fatalf("%v: bytes %d to %d: %d, %v", to, from, from+n, k, err)
			}
		}
		if n, err := c.ReadAt(make([]byte, 8), int64(len(want))-4); n != 4 || err == nil {
			t.Errorf("%v: reading beyond the end returns %d, %v", to, n, err)
		}
		for _, rows := range [][4]int64{{0, 5, 40, 100}, {6, 3, 7, 21}, {0, 2, 2*maxStep + 8, 2*maxStep + 8}, {4, 100, 2, 300}} {
			off, count, n, stride := rows[0], rows[1], rows[2], rows[3]
			got := make([]byte, count*n)
			if err := c.ReadRows(got, off, count, n, stride); err != nil {
				t.Fatalf("%v: rows %v: %v", to, rows, err)
			}
			for i := range count {
				if at := off + i*stride; !bytes.Equal(got[i*n:(i+1)*n], want[at:at+n]) {
					t.Errorf("%v: row %d of %v differs", to, i, rows)
				}
			}
		}
	}
}

func TestContentBeyond(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{1, 1e-9, -70000, 65519, inf, 0, 1e9, 3}
	for _, test := range []struct {
		clamp  bool
		want   []uint16
		beyond bool
	}{
		{false, []uint16{0x3c00, 0, 0xfc00, 0x7bff, 0x7c00, 0, 0x7c00, 0x4200}, true},
		{true, []uint16{0x3c00, 0, 0xfbff, 0x7bff, 0x7c00, 0, 0x7bff, 0x4200}, false},
	} {
		c := &content{source(x), dtype.Float16, test.clamp, &Tally{}}
		got := make([]byte, 2*len(x))
		if _, err := c.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		for i, want := range test.want {
			if h := binary.LittleEndian.Uint16(got[2*i:]); h != want {
				t.Errorf("clamp %v: %g is %04x, want %04x", test.clamp, x[i], h, want)
			}
		}
		if c.tally.beyond.Load() != test.beyond || c.tally.Vanished.Load() != 1 {
			t.Errorf("clamp %v: beyond %v, %d vanished", test.clamp, c.tally.beyond.Load(), c.tally.Vanished.Load())
		}
	}
}
