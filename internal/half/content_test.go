package half

import (
	"bytes"
	"encoding/binary"
	"math"
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
		c := &content{dtype.Float16, test.clamp, &Tally{}}
		got := make([]byte, 2*len(x))
		if _, err := c.of(source(x)).ReadAt(got, 0); err != nil {
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
