package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
)

// wantCode is the rule in the words of the mathematics library.
func wantCode(x, scale float32, f Format, zero int32) byte {
	t := x / scale
	if f.Type == Float16 {
		t = float16.Fromfloat32(t).Float32()
	}
	c := math.RoundToEven(float64(t)) + float64(zero)
	return byte(int32(min(max(c, float64(f.Lo)), float64(f.Hi))))
}

// wantValue is what a code stands for.
func wantValue(q byte, scale float32, f Format, zero int32) float32 {
	y := float32(f.value(q)-zero) * scale
	switch f.Type {
	case Float16:
		return float16.Fromfloat32(y).Float32()
	case BFloat16:
		// The nearer of its neighbours, or the even one.
		down := math.Float32frombits(math.Float32bits(y) &^ 0xffff)
		up := math.Float32frombits(math.Float32bits(down) + 0x10000)
		below, above := math.Abs(float64(y)-float64(down)), math.Abs(float64(up)-float64(y))
		if above < below || above == below && math.Float32bits(down)&0x10000 != 0 {
			return up
		}
		return down
	}
	return y
}

// value returns the number that a byte holds.
func (f Format) value(b byte) int32 {
	if f.Lo < 0 {
		return int32(int8(b))
	}
	return int32(b)
}

// formats yields those of integers of 2, 4 and 8 bits, in each type.
func formats(yield func(Format) bool) {
	for _, t := range []Type{Float32, Float16, BFloat16} {
		for _, c := range ranges {
			if !yield(Format{c.lo, c.hi, t}) {
				return
			}
		}
	}
}

func TestQuantize(t *testing.T) {
	for range implementations(t) {
		r := random(4)
		for n := 1; n <= 100; n++ {
			for f := range formats {
				checkQuantize(t, numbersOf(f.Type, samples(r, 3*n)), scalesFor(r, n, f), f, r)
			}
		}
	}
}

// scalesFor returns scales whose products with codes are in the range of f.Type.
func scalesFor(r *rand.Rand, n int, f Format) []float32 {
	s := scales(r, n)
	if f.Type == Float16 {
		for i := range s {
			s[i] = min(s[i], 65504./256)
		}
	}
	return numbersOf(f.Type, s)
}

// numbersOf makes x float16, if that is their type. Those beyond its range become its largest.
func numbersOf(t Type, x []float32) []float32 {
	if t == Float16 {
		for i, v := range x {
			x[i] = float16.Fromfloat32(min(max(v, -65504), 65504)).Float32()
		}
	}
	return x
}

// checkQuantize holds all ways to quantize rows of x against the plain rule.
func checkQuantize(t *testing.T, x, scale []float32, f Format, r *rand.Rand) {
	t.Helper()
	n := len(scale)
	zero := make([]byte, n)
	for i := range zero {
		zero[i] = byte(f.Lo + r.Int32N(f.Hi-f.Lo+1))
	}
	q, y := make([]byte, len(x)), make([]float32, len(x))
	check := func(name string, length int, got ErrorSums, scaleOf, zeroOf func(i int) int) {
		t.Helper()
		var want ErrorSums
		for i, code := range q {
			s, z := scale[scaleOf(i)], f.value(zero[zeroOf(i)])
			if want := wantCode(x[i], s, f, z); code != want {
				t.Fatalf("%s: %v / %v + %d in %v has code %d, want %d", name, x[i], s, z, f, code, want)
			}
			y[i] = wantValue(code, s, f, z)
		}
		for at := 0; at < len(x); at += length {
			end := min(at+length, len(x))
			want.addGo(x[at:end], y[at:end])
		}
		if got != want {
			t.Fatalf("%s: %v of scales %v in %v has errors %v, want %v", name, x, scale, f, got, want)
		}
	}
	first := func(int) int { return 0 }
	column := func(i int) int { return i % n }
	block := func(i int) int { return i / 3 }

	var s ErrorSums
	QuantizeColumns(q, x, scale, zero[:1], f, &s)
	check("QuantizeColumns", n, s, column, first)
	s = ErrorSums{}
	QuantizeColumns(q, x, scale, zero, f, &s)
	check("QuantizeColumns with zero points", n, s, column, column)
	s = ErrorSums{}
	QuantizeBlocks(q, x, scale, zero[:1], len(x), len(x), f, &s)
	check("QuantizeBlocks of one block", len(x), s, first, first)
	if len(x) != 3*n {
		return
	}
	s = ErrorSums{}
	QuantizeBlocks(q, x, scale, zero[:1], len(x), 3, f, &s)
	check("QuantizeBlocks", 3, s, block, first)
	s = ErrorSums{}
	QuantizeBlocks(q, x, scale, zero, len(x), 3, f, &s)
	check("QuantizeBlocks with zero points", 3, s, block, block)
}

// Around each number that a code begins or ends at, by single steps.
func TestQuantizeTies(t *testing.T) {
	var x []float32
	for i := range 600 {
		v := float32(i) / 2
		for _, v := range []float32{v, -v} {
			x = append(x, math.Nextafter32(v, -inf), v, math.Nextafter32(v, inf))
		}
	}
	for range implementations(t) {
		r := random(5)
		for f := range formats {
			checkQuantize(t, numbersOf(f.Type, slices.Clone(x)), []float32{1}, f, r)
		}
	}
}

// Every float16, by some scales: the least one, subnormal ones, powers of two, any.
func TestQuantizeFloat16(t *testing.T) {
	var x []float32
	for h := range uint16(0x7c00) {
		v := float16.Frombits(h).Float32()
		x = append(x, v, -v)
	}
	r, f := random(6), Format{-128, 127, Float16}
	scale := append([]float32{0x1p-24, 0x1.8p-15, 1, 65504. / 256}, scalesFor(r, 12, f)...)
	for range implementations(t) {
		for _, s := range scale {
			checkQuantize(t, x, []float32{s}, f, r)
		}
	}
}

// All quotients of float16 that some code may depend on, except for powers of two, give the codes
// that those give which are rounded with ties to even.
func TestHalfQuotient(t *testing.T) {
	for over := float32(0x1p-2); over <= 0x1p9; over *= 2 {
		for a := float32(1024); a < 2048; a++ {
			for b := float32(1024); b < 2048; b++ {
				q := over * a / b
				if got, want := halfQuotient(q)+magic, nearest(q, 13)+magic; got != want {
					t.Fatalf("%v is rounded to %v, want %v", q, got, want)
				}
			}
		}
	}
}

// All products of codes and float16, as far as they are finite.
func TestHalfProduct(t *testing.T) {
	for h := range uint16(0x7c00) {
		scale := float16.Frombits(h).Float32()
		for code := float32(-255); code <= 255; code++ {
			v := code * scale
			if want := roundFloat16(v); halfProduct(v) != want && abs(want) <= abs(65504) {
				t.Fatalf("%v is rounded to %v, want %v", v, halfProduct(v), want)
			}
		}
	}
}

func FuzzQuantize(f *testing.F) {
	f.Add(uint32(0x3f000000), uint32(0x3f800000), uint8(1), uint64(0))
	f.Add(uint32(0xcb400000), uint32(0x3f800000), uint8(5), uint64(1))
	all := slices.Collect(formats)
	f.Fuzz(func(t *testing.T, xBits, scaleBits uint32, which uint8, seed uint64) {
		x, scale := math.Float32frombits(xBits), math.Float32frombits(scaleBits&^signBit)
		f := all[int(which)%len(all)]
		if !IsFinite(x) || !IsFinite(scale*512) {
			t.Skip()
		}
		numbers := numbersOf(f.Type, []float32{x, scale})
		x, scale = numbers[0], numbers[1]
		if scale == 0 || f.Type == Float16 && scale > 65504./256 {
			t.Skip()
		}
		for range implementations(t) {
			checkQuantize(t, []float32{x}, []float32{scale}, f, random(seed))
		}
	})
}

// Ties are rounded up, and so is nothing just below them.
func TestRoundUp(t *testing.T) {
	x := []float32{nan, -inf, -0.5, 0.25, 255.5, inf}
	for i := range 256 {
		tie := float32(i) + 0.5
		x = append(x, float32(i), tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, 1000))
	}
	one, zero := make([]float32, len(x)), make([]float32, len(x))
	fill(one, 1)
	for _, steps := range []float32{3, 15, 255} {
		for range implementations(t) {
			q := make([]byte, len(x))
			RoundUpColumns(q, x, one, zero, steps, 7)
			for i, v := range x {
				want := 0.0 // also for NaN
				if v > 0 {
					want = math.Floor(min(float64(v), float64(steps)) + 0.5)
				}
				if q[i] != byte(want)+7 {
					t.Errorf("%v becomes %d, want %v + 7", v, q[i], want)
				}
			}
		}
	}
}
