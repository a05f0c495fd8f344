package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
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

func TestRange(t *testing.T) {
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
		lo, hi := Range(0, 0, x)
		if wantLo, wantHi := slices.Min(append(x, 0)), slices.Max(append(x, 0)); lo != wantLo || hi != wantHi {
			t.Fatalf("%d elements: %v … %v, want %v … %v", n, lo, hi, wantLo, wantHi)
		}
		if l, h := Range(lo, hi, nil); l != lo || h != hi {
			t.Fatalf("no elements change %v … %v to %v … %v", lo, hi, l, h)
		}
	}
}

// Columns are blocks laid side by side.
func TestRangesOfColumns(t *testing.T) {
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
			if wantLo, wantHi := Range(0, 0, column); lo[i] != wantLo || hi[i] != wantHi {
				t.Fatalf("column %d of %d: %v … %v, want %v … %v", i, n, lo[i], hi[i], wantLo, wantHi)
			}
		}
	}
}

func TestRangesShowNonFinite(t *testing.T) {
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
				if lo, hi := Range(0, 0, x); IsFinite(lo) && IsFinite(hi) {
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

// wantCode is the rule in the words of the mathematics library.
func wantCode(x, scale float32, half bool, zero, lo, hi int32) byte {
	t := x / scale
	if half {
		t = float16.Fromfloat32(t).Float32()
	}
	c := math.RoundToEven(float64(t)) + float64(zero)
	return byte(int32(min(max(c, float64(lo)), float64(hi))))
}

var ranges = []struct{ lo, hi int32 }{{-2, 1}, {-8, 7}, {-128, 127}, {0, 3}, {0, 15}, {0, 255}}

func TestQuantize(t *testing.T) {
	r := random(4)
	for n := 1; n <= 100; n++ {
		for _, c := range ranges {
			checkQuantize(t, samples(r, 3*n), scales(r, n), c.lo, c.hi, r)
		}
	}
}

// checkQuantize holds all ways to quantize rows of x against the plain rule.
func checkQuantize(t *testing.T, x, scale []float32, lo, hi int32, r *rand.Rand) {
	t.Helper()
	n := len(scale)
	zero := make([]byte, n)
	for i := range zero {
		zero[i] = byte(lo + r.Int32N(hi-lo+1))
	}
	value := func(z byte) int32 {
		if lo < 0 {
			return int32(int8(z))
		}
		return int32(z)
	}
	q := make([]byte, len(x))
	check := func(name string, half bool, column, zeroOf func(i int) int) {
		t.Helper()
		for i, got := range q {
			s, z := scale[column(i)], value(zero[zeroOf(i)])
			if want := wantCode(x[i], s, half, z, lo, hi); got != want {
				t.Fatalf("%s: %v / %v + %d in %d … %d has code %d, want %d", name, x[i], s, z, lo, hi, got, want)
			}
		}
	}
	first := func(int) int { return 0 }
	each := func(i int) int { return i % n }
	z := value(zero[0])
	QuantizeBlock(q, x, scale[0], z, lo, hi)
	check("QuantizeBlock", false, first, first)
	QuantizeBlockHalf(q, x, scale[0], z, lo, hi)
	check("QuantizeBlockHalf", true, first, first)
	QuantizeColumns(q, x, scale, z, lo, hi)
	check("QuantizeColumns", false, each, first)
	QuantizeColumnsHalf(q, x, scale, z, lo, hi)
	check("QuantizeColumnsHalf", true, each, first)
	QuantizeColumnsZero(q, x, scale, zero, lo, hi)
	check("QuantizeColumnsZero", false, each, each)
	QuantizeColumnsZeroHalf(q, x, scale, zero, lo, hi)
	check("QuantizeColumnsZeroHalf", true, each, each)
}

// Around each number that a code begins or ends at, and in float16 around each
// that rounding to it begins or ends at, by single steps.
func TestQuantizeTies(t *testing.T) {
	var x []float32
	around := func(v float32) {
		for _, v := range []float32{v, -v} {
			x = append(x, math.Nextafter32(v, -inf), v, math.Nextafter32(v, inf))
		}
	}
	for i := range 600 {
		around(float32(i) / 2)
	}
	for h := uint16(0); h < 0x7bff; h++ {
		a, b := float16.Frombits(h).Float32(), float16.Frombits(h+1).Float32()
		around((a + b) / 2)
	}
	r := random(5)
	for _, c := range ranges {
		checkQuantize(t, x, []float32{1}, c.lo, c.hi, r)
	}
}

func FuzzQuantize(f *testing.F) {
	f.Add(uint32(0x3f000000), uint32(0x3f800000), uint8(1), uint64(0))
	f.Add(uint32(0xcb400000), uint32(0x3f800000), uint8(5), uint64(1))
	f.Fuzz(func(t *testing.T, xBits, scaleBits uint32, which uint8, seed uint64) {
		x, s := math.Float32frombits(xBits), math.Float32frombits(scaleBits&^signBit)
		if math.IsNaN(float64(x / s)) {
			t.Skip()
		}
		c := ranges[int(which)%len(ranges)]
		checkQuantize(t, []float32{x}, []float32{s}, c.lo, c.hi, random(seed))
	})
}

func TestDequantize(t *testing.T) {
	r := random(6)
	for n := 1; n <= 100; n++ {
		scale := scales(r, n)
		for _, c := range ranges {
			q, zero := make([]byte, 3*n), make([]byte, n)
			codes, zeros := make([]int32, 3*n), make([]int32, n)
			for i := range q {
				codes[i] = c.lo + r.Int32N(c.hi-c.lo+1)
				q[i] = byte(codes[i])
			}
			for i := range zero {
				zeros[i] = c.lo + r.Int32N(c.hi-c.lo+1)
				zero[i] = byte(zeros[i])
			}
			want, got := make([]float32, 3*n), make([]float32, 3*n)
			for i := range want {
				want[i] = float32(codes[i]-zeros[i%n]) * scale[i%n]
			}
			DequantizeColumnsZero(got, q, scale, zero, c.lo)
			sameFloats(t, "DequantizeColumnsZero", got, want)
			for i := range want {
				want[i] = float32(codes[i]-zeros[0]) * scale[0]
			}
			DequantizeBlock(got, q, scale[0], zeros[0], c.lo)
			sameFloats(t, "DequantizeBlock", got, want)
			for i := range want {
				want[i] = float32(codes[i]-zeros[0]) * scale[i%n]
			}
			DequantizeColumns(got, q, scale, zeros[0], c.lo)
			sameFloats(t, "DequantizeColumns", got, want)
		}
	}
}

func TestPack(t *testing.T) {
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

func TestUnpackUndoesPack(t *testing.T) {
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

func TestErrors(t *testing.T) {
	r := random(8)
	for n := range 101 {
		x, y := make([]float32, n), make([]float32, n)
		var e, s [4]float64
		var want float64
		for i := range x {
			x[i], y[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
			d := float64(x[i]) - float64(y[i])
			e[i%4] += float64(d * d)
			s[i%4] += float64(float64(x[i]) * float64(x[i]))
			want = max(want, math.Abs(d))
		}
		sqErr, sq, maxAbs := Errors(x, y)
		if sqErr != e[0]+e[1]+(e[2]+e[3]) || sq != s[0]+s[1]+(s[2]+s[3]) || maxAbs != want {
			t.Fatalf("%d elements: %v, %v, %v, want %v, %v, %v", n, sqErr, sq, maxAbs, e, s, want)
		}
	}
}
