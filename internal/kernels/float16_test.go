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

// Bits of float32 around every float16 and bfloat16, halfway to the next and beside that, and
// some NaN; in groups that assembly and the plain loop share.
func TestToHalf(t *testing.T) {
	var x []float32
	add := func(bits uint32) {
		for _, b := range []uint32{bits, bits - 1, bits + 1, bits | 1<<31} {
			x = append(x, math.Float32frombits(b))
		}
	}
	for h := range uint32(1 << 15) {
		add(h << 16)        // bfloat16
		add(h<<16 | 0x8000) // halfway
		f := float16.Frombits(uint16(h)).Float32()
		add(math.Float32bits(f))
		if h < 0x7c00 {
			next := float16.Frombits(uint16(h + 1)).Float32()
			if h == 0x7bff {
				next = 65536
			}
			add(math.Float32bits((f + next) / 2))
		}
	}
	var finite []float32
	for _, v := range x {
		if v == v {
			finite = append(finite, v)
		}
	}
	for range implementations(t) {
		for _, x := range [][]float32{x, finite, finite[:37], finite[:3]} {
			got := make([]byte, 2*len(x))
			beyond, vanished := ToFloat16(got, x)
			wantBeyond, wantVanished := 0, 0
			for i, v := range x {
				h := binary.LittleEndian.Uint16(got[2*i:])
				if v == v {
					if want := float16.Fromfloat32(v).Bits(); h != want {
						t.Fatalf("float16 of %x is %04x, want %04x", math.Float32bits(v), h, want)
					}
					if h&0x7fff == 0x7c00 && !math.IsInf(float64(v), 0) {
						wantBeyond++
					}
					if h&0x7fff == 0 && v != 0 {
						wantVanished++
					}
				} else if h&0x7c00 != 0x7c00 || h&0x3ff == 0 {
					t.Fatalf("float16 of a NaN, %x, is %04x", math.Float32bits(v), h)
				}
			}
			if beyond != wantBeyond || vanished != wantVanished {
				t.Errorf("float16: %d beyond and %d vanished, want %d and %d", beyond, vanished, wantBeyond, wantVanished)
			}
			beyond, vanished = ToBFloat16(got, x)
			wantBeyond, wantVanished = 0, 0
			for i, v := range x {
				h := binary.LittleEndian.Uint16(got[2*i:])
				if v == v {
					want := nearest(v, 16)
					if back := math.Float32frombits(uint32(h) << 16); back != want || math.Signbit(float64(back)) != math.Signbit(float64(v)) {
						t.Fatalf("bfloat16 of %x is %04x", math.Float32bits(v), h)
					}
					if h&0x7fff == 0x7f80 && !math.IsInf(float64(v), 0) {
						wantBeyond++
					}
					if h&0x7fff == 0 && v != 0 {
						wantVanished++
					}
				} else if h&0x7fff != 0x7fc0 {
					t.Fatalf("bfloat16 of a NaN, %x, is %04x", math.Float32bits(v), h)
				}
			}
			if beyond != wantBeyond || vanished != wantVanished {
				t.Errorf("bfloat16: %d beyond and %d vanished, want %d and %d", beyond, vanished, wantBeyond, wantVanished)
			}
		}
	}
}
