package kernels

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/x448/float16"
)

func TestFromHalves(t *testing.T) {
	const n = 1 << 16
	src := make([]byte, 2*n)
	for i := range n {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	check := func(name string, i int, got, want float32) {
		t.Helper()
		if want != want {
			want = math.Float32frombits(math.Float32bits(want) | 0x400000) // quiet
		}
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("%s %04x is %v, want %v", name, i, got, want)
		}
	}
	x := make([]float32, n)
	for range implementations(t) {
		FromFloat16(x, src)
		for i, v := range x {
			check("float16", i, v, float16.Frombits(uint16(i)).Float32())
		}
		FromBFloat16(x, src)
		for i, v := range x {
			if got, want := math.Float32bits(v), uint32(i)<<16; got != want {
				t.Fatalf("bfloat16 %04x is %08x", i, got)
			}
		}
	}
}

// Every float16, what lies halfway to the next, and both neighbours of that.
func TestRound(t *testing.T) {
	var x []float32
	for h := range uint16(0x7c00) {
		v := float16.Frombits(h).Float32()
		if h == 0x7bff {
			x = append(x, v, -v)
			break
		}
		tie := (v + float16.Frombits(h+1).Float32()) / 2
		for _, v := range []float32{v, math.Nextafter32(tie, 0), tie, math.Nextafter32(tie, inf)} {
			x = append(x, v, -v)
		}
	}
	x = append(x, 1e-30, -1e-40)
	y := append([]float32(nil), x...)
	round(y, Float16)
	for i, v := range x {
		if want := float16.Fromfloat32(v).Float32(); y[i] != want {
			t.Fatalf("%v becomes %v, want %v", v, y[i], want)
		}
	}
}
