package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var inf = float32(math.Inf(1))
var nan = float32(math.NaN())

// specials are what loops on floats go wrong with.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 0.5, -0.5, 1.5, -2.5, 6.5, 7.5, -7.5, -8.5, 127.5, -128.5,
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, 0x1p-126, -0x1p-126,
	math.MaxFloat32, -math.MaxFloat32, 0x1p22, -0x1p22, 0x1p23 + 1, -0x1.8p23, 0x1p31, -0x1p31, 65504, 65520,
}

// samples returns n finite values: some special, some of any bits, some ordinary.
func samples(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch r.IntN(4) {
		case 0:
			x[i] = specials[r.IntN(len(specials))]
		case 1:
			x[i] = math.Float32frombits(r.Uint32())
			if !IsFinite(x[i]) {
				x[i] = 3
			}
		default:
			x[i] = float32(r.NormFloat64())
		}
	}
	return x
}

func scales(r *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(math.Exp2(r.Float64()*40 - 20))
	}
	return s
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func sameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

func TestAbsMax(t *testing.T) {
	for range implementations(t) {
		r := random(1)
		for n := range 101 {
			x := samples(r, n)
			want := float32(0)
			for _, v := range x {
				want = max(want, float32(math.Abs(float64(v))))
			}
			if got := AbsMax(0, x); got != want {
				t.Fatalf("%d elements: %v, want %v", n, got, want)
			}
			if got := AbsMax(inf, x); got != inf {
				t.Fatalf("%d elements after infinity: %v", n, got)
			}
		}
	}
}

// rangeOf returns the range of 0 and all of x.
func rangeOf(x []float32) (lo, hi float32) {
	var l, h [1]float32
	if len(x) > 0 {
		RangeBlocks(l[:], h[:], x, len(x), len(x))
	}
	return l[0], h[0]
}

func TestRange(t *testing.T) {
	for range implementations(t) {
		r := random(2)
		for n := range 101 {
			x := samples(r, n)
			for i := range x { // ranges to both sides of 0 and to one
				if n%3 == 1 {
					x[i] = float32(math.Abs(float64(x[i])))
				} else if n%3 == 2 {
					x[i] = -float32(math.Abs(float64(x[i])))
				}
			}
			lo, hi := rangeOf(x)
			if wantLo, wantHi := slices.Min(append(x, 0)), slices.Max(append(x, 0)); lo != wantLo || hi != wantHi {
				t.Fatalf("%d elements: %v … %v, want %v … %v", n, lo, hi, wantLo, wantHi)
			}
		}
	}
}

// Columns are blocks laid side by side.
func TestRangesOfColumns(t *testing.T) {
	for range implementations(t) {
		r := random(3)
		for n := 1; n <= 100; n++ {
			rows := r.IntN(5)
			x := samples(r, rows*n)
			acc, lo, hi := make([]float32, n), make([]float32, n), make([]float32, n)
			AbsMaxColumns(acc, x)
			RangeColumns(lo, hi, x)
			for i := range n {
				var column []float32
				for k := range rows {
					column = append(column, x[k*n+i])
				}
				if want := AbsMax(0, column); acc[i] != want {
					t.Fatalf("column %d of %d: magnitude %v, want %v", i, n, acc[i], want)
				}
				if wantLo, wantHi := rangeOf(column); lo[i] != wantLo || hi[i] != wantHi {
					t.Fatalf("column %d of %d: %v … %v, want %v … %v", i, n, lo[i], hi[i], wantLo, wantHi)
				}
			}
		}
	}
}

func TestRangesShowNonFinite(t *testing.T) {
	for range implementations(t) {
		negativeNaN := math.Float32frombits(math.Float32bits(nan) | signBit)
		for n := 1; n <= 20; n++ {
			for at := range n {
				for _, bad := range []float32{inf, -inf, nan, negativeNaN, math.Float32frombits(0x7f800001)} {
					x := make([]float32, n)
					for i := range x {
						x[i] = math.MaxFloat32 * float32(1-2*(i%2))
					}
					x[at] = bad
					if m := AbsMax(0, x); IsFinite(m) {
						t.Fatalf("%v at %d of %d: magnitude %v", bad, at, n, m)
					}
					if lo, hi := rangeOf(x); IsFinite(lo) && IsFinite(hi) {
						t.Fatalf("%v at %d of %d: %v … %v", bad, at, n, lo, hi)
					}
					acc, lo, hi := make([]float32, n), make([]float32, n), make([]float32, n)
					AbsMaxColumns(acc, x)
					RangeColumns(lo, hi, x)
					AbsMaxColumns(acc, make([]float32, n)) // what follows does not hide it
					RangeColumns(lo, hi, make([]float32, n))
					for i := range n {
						if IsFinite(acc[i]) != (i != at) || (IsFinite(lo[i]) && IsFinite(hi[i])) != (i != at) {
							t.Fatalf("%v at %d of %d: column %d has %v, %v … %v", bad, at, n, i, acc[i], lo[i], hi[i])
						}
					}
				}
			}
		}
	}
}

var ranges = []struct{ lo, hi int32 }{{-2, 1}, {-8, 7}, {-128, 127}, {0, 3}, {0, 15}, {0, 255}}

func TestDequantize(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, n int) {
		scale := scales(r, n)
		for _, c := range ranges {
			q, zero := fenced[byte](t, 3*n), fenced[byte](t, n)
			codes, zeros := make([]int32, 3*n), make([]int32, n)
			for i := range q {
				codes[i] = c.lo + r.Int32N(c.hi-c.lo+1)
				q[i] = byte(codes[i])
			}
			for i := range zero {
				zeros[i] = c.lo + r.Int32N(c.hi-c.lo+1)
				zero[i] = byte(zeros[i])
			}
			got := fenced[float32](t, 3*n)
			check := func(name string, decode func(), want func(i int) float32) {
				t.Helper()
				wanted := make([]float32, 3*n)
				for i := range got {
					got[i], wanted[i] = nan, want(i)
				}
				decode()
				sameFloats(t, name, got, wanted)
			}
			check("DequantizeColumnsZero", func() { DequantizeColumnsZero(got, q, scale, zero, c.lo) },
				func(i int) float32 { return float32(codes[i]-zeros[i%n]) * scale[i%n] })
			check("DequantizeBlock", func() { DequantizeBlock(got, q, scale[0], zeros[0], c.lo) },
				func(i int) float32 { return float32(codes[i]-zeros[0]) * scale[0] })
			check("DequantizeColumns", func() { DequantizeColumns(got, q, scale, zeros[0], c.lo) },
				func(i int) float32 { return float32(codes[i]-zeros[0]) * scale[i%n] })
		}
	})
}

func TestPack(t *testing.T) {
	for range implementations(t) {
		for _, c := range []struct{ codes, packed4, packed2 []byte }{
			{nil, []byte{}, []byte{}},
			{[]byte{1}, []byte{0x01}, []byte{0x01}},
			{[]byte{1, 2, 3}, []byte{0x21, 0x03}, []byte{0x39}},
			{[]byte{0xff, 0, 0xfe, 1, 0x05}, []byte{0x0f, 0x1e, 0x05}, []byte{0x63, 0x01}},
			{[]byte{1, 2, 3, 0, 1, 2, 3, 0, 1}, []byte{0x21, 0x03, 0x21, 0x03, 0x01}, []byte{0x39, 0x39, 0x01}},
		} {
			got4, got2 := make([]byte, (len(c.codes)+1)/2), make([]byte, (len(c.codes)+3)/4)
			Pack4(got4, c.codes)
			Pack2(got2, c.codes)
			if !bytes.Equal(got4, c.packed4) || !bytes.Equal(got2, c.packed2) {
				t.Errorf("% x packs to % x and % x, want % x and % x", c.codes, got4, got2, c.packed4, c.packed2)
			}
		}
	}
}

func TestUnpackUndoesPack(t *testing.T) {
	for range implementations(t) {
		r := random(7)
		for n := range 101 {
			for _, c := range ranges {
				if c.hi > 15 || c.lo < -8 {
					continue
				}
				q, back := make([]byte, n), make([]byte, n)
				for i := range q {
					q[i] = byte(c.lo + r.Int32N(c.hi-c.lo+1))
				}
				// A guard behind the last byte shows writes beyond it.
				guarded := func(n int) []byte { return append(make([]byte, n), 0xa5) }
				p4 := guarded((n + 1) / 2)
				Pack4(p4, q)
				Unpack4(back, p4, c.lo < 0)
				if !bytes.Equal(back, q) || p4[len(p4)-1] != 0xa5 {
					t.Fatalf("%d codes of 4 bits: % x became % x by % x", n, q, back, p4)
				}
				if c.hi > 3 || c.lo < -2 {
					continue
				}
				p2 := guarded((n + 3) / 4)
				Pack2(p2, q)
				Unpack2(back, p2, c.lo < 0)
				if !bytes.Equal(back, q) || p2[len(p2)-1] != 0xa5 {
					t.Fatalf("%d codes of 2 bits: % x became % x by % x", n, q, back, p2)
				}
			}
		}
	}
}

func TestMultiplyTile(t *testing.T) {
	for name := range implementations(t) {
		for _, n := range []int{0, 1, 2, 7, 300} {
			r := random(uint64(n))
			const stride = TileColumns + 3
			a, b := wild(t, r, n*TileRows), wild(t, r, n*TileColumns)
			c := fenced[float32](t, (TileRows-1)*stride+TileColumns)
			want := make([]float32, len(c))
			for i := range c {
				want[i] = r.Float32()
				c[i] = want[i]
			}
			for fromStride, from := range map[int][]float32{stride: c, 0: wild(t, r, TileColumns)} {
				other := from
				if fromStride > 0 {
					other = slices.Clone(want)
				}
				MultiplyTile(c, stride, from, fromStride, a, b)
				if n > 0 {
					multiplyTileGo(want, stride, other, fromStride, a, b)
				}
			}
			for i := range c {
				if nan := c[i] != c[i] && want[i] != want[i]; !nan && math.Float32bits(c[i]) != math.Float32bits(want[i]) {
					t.Fatalf("%s: %d products: %v at %d; want %v", name, n, c[i], i, want[i])
				}
			}
		}
	}
}

func TestAddMultiple(t *testing.T) {
	for name := range implementations(t) {
		for _, n := range []int{0, 1, 7, 8, 15, 16, 33, 100} {
			r := random(uint64(n))
			x, y := wild(t, r, n), wild(t, r, n)
			want := slices.Clone(y)
			addMultipleGo(want, 0.3, x)
			AddMultiple(y, 0.3, x)
			sameNumbers(t, name, y, want)
		}
	}
}
