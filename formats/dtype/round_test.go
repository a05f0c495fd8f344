package dtype

import (
	"math"
	"slices"
	"testing"

	"github.com/x448/float16"
)

// Every pair of neighbours, their middle, and the middle's neighbours.
func TestRounding(t *testing.T) {
	for name, f := range map[string]struct {
		at    func(i uint16) float32
		round func(float32) float32
	}{
		"float16":  {func(i uint16) float32 { return float16.Frombits(i).Float32() }, RoundFloat16},
		"bfloat16": {func(i uint16) float32 { return math.Float32frombits(uint32(i) << 16) }, RoundBFloat16},
	} {
		for i := uint16(0); ; i++ {
			a, b := f.at(i), f.at(i+1)
			if math.IsInf(float64(b), 0) {
				break
			}
			even := a
			if i&1 != 0 {
				even = b
			}
			middle := float32((float64(a) + float64(b)) / 2)
			for x, want := range map[float32]float32{
				a: a, middle: even, math.Nextafter32(middle, 0): a, math.Nextafter32(middle, b): b,
			} {
				if got := f.round(x); got != want {
					t.Fatalf("%s: %v rounds to %v, want %v", name, x, got, want)
				}
				if got := f.round(-x); got != -want {
					t.Fatalf("%s: %v rounds to %v, want %v", name, -x, got, -want)
				}
			}
		}
	}
	inf, nan := math.Inf(1), float32(math.NaN())
	for x, want := range map[float32]float64{65519.996: 65504, 65520: inf, -65520: -inf, math.MaxFloat32: inf} {
		if got := RoundFloat16(x); float64(got) != want {
			t.Errorf("float16: %v rounds to %v, want %v", x, got, want)
		}
	}
	for x, want := range map[float32]float64{0x1.fefffep127: 0x1.fep127, 0x1.ffp127: inf, -math.MaxFloat32: -inf} {
		if got := RoundBFloat16(x); float64(got) != want {
			t.Errorf("bfloat16: %v rounds to %v, want %v", x, got, want)
		}
	}
	for _, x := range []float32{nan, -nan, math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff)} {
		if got := RoundBFloat16(x); got == got {
			t.Errorf("bfloat16: NaN %x rounds to %v", math.Float32bits(x), got)
		}
	}
}

// Every float16, the midpoints of neighbours, and what is nearest to these.
func TestFloat16Bits(t *testing.T) {
	for h := uint16(0); h <= 0x7c00; h++ {
		v := float64(float16.Frombits(h).Float32())
		next := float64(float16.Frombits(h + 1).Float32())
		if h == 0x7bff {
			next = 65536
		}
		if h == 0x7c00 {
			next = v
		}
		mid := v + (next-v)/2
		even := h + h&1
		for _, c := range []struct {
			x    float64
			want uint16
		}{
			{v, h}, {mid, even}, {math.Nextafter(mid, 0), h}, {math.Nextafter(mid, math.Inf(1)), h + 1},
		} {
			if h == 0x7c00 && !math.IsInf(c.x, 0) {
				continue
			}
			if h == 0x7c00 {
				c.want = h
			}
			if got := Float16BitsFromFloat64(c.x); got != c.want {
				t.Fatalf("%v is %#x, want %#x", c.x, got, c.want)
			}
			if got := Float16BitsFromFloat64(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v is %#x, want %#x", -c.x, got, c.want|0x8000)
			}
		}
	}
}

// Every bfloat16, the midpoints of neighbours, and what is nearest to these.
func TestBFloat16Bits(t *testing.T) {
	for h := uint32(0); h < 0x7f80; h++ {
		for _, c := range []struct{ x, want uint32 }{
			{h << 16, h}, {h<<16 | 0x7fff, h}, {h<<16 | 0x8000, h + h&1}, {h<<16 | 0x8001, h + 1},
		} {
			for _, sign := range []uint32{0, 1} {
				x := math.Float32frombits(c.x | sign<<31)
				want := uint16(c.want | sign<<15)
				if got := BFloat16Bits(x); got != want {
					t.Fatalf("%v is %#x, want %#x", x, got, want)
				}
				if got := math.Float32bits(RoundBFloat16(x)); got != uint32(want)<<16 {
					t.Fatalf("%v rounds to %#x, want %#x", x, got, uint32(want)<<16)
				}
			}
		}
	}
}

func TestRoundAll(t *testing.T) {
	for _, typ := range []DType{0, Float32, Float16, BFloat16} {
		x := []float32{1.0001, -3.14159, 1e-6, 1e30, 0}
		want := slices.Clone(x)
		for i, v := range want {
			want[i] = typ.Round(v)
		}
		typ.RoundAll(x)
		if !slices.Equal(x, want) {
			t.Errorf("%s: %v, want %v", typ, x, want)
		}
	}
}

// RoundAll gives the bits of Round: around every float16 and midpoint, and between.
func TestRoundAllFloat16(t *testing.T) {
	var x []float32
	for h := range uint16(0x7c01) {
		b := math.Float32bits(float16.Frombits(h).Float32())
		for _, d := range []uint32{0, 1, 1<<12 - 1, 1 << 12, 1<<12 + 1, 1<<13 - 1, 3 << 20} {
			x = append(x, math.Float32frombits(b+d), -math.Float32frombits(b+d))
		}
	}
	for i := range 100 { // halves of the least float16, and less
		x = append(x, float32(i)*0x1p-26, -float32(i)*0x1p-26, math.Nextafter32(float32(i)*0x1p-25, 1))
	}
	y := slices.Clone(x)
	Float16.RoundAll(y)
	for i, v := range x {
		got, want := math.Float32bits(y[i]), math.Float32bits(Float16.Round(v))
		if got != want && v == v {
			t.Fatalf("%v rounds to %#x, want %#x", v, got, want)
		}
		if v != v && y[i] == y[i] {
			t.Fatalf("NaN rounds to %v", y[i])
		}
	}
}
