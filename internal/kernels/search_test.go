package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

var affineSearches = []AffineSearch{
	{Block: 32, Last: 15, First: -1, Step: 0.1, Tries: 21, Weighting: AboveAverage},
	{Block: 32, Last: 31, First: -0.5, Step: 0.1, Tries: 16, Weighting: AboveAverage},
	{Block: 16, Last: 3, First: -0.5, Step: 0.1, Tries: 16, Absolute: true, Weighting: Magnitudes},
	{Block: 32, Last: 15, First: -0.9, Step: 0.05, Tries: 37},
	{Block: 16, Last: 7, First: 0, Step: 0.1, Tries: 1, Weighting: Squares},
}

var symmetricSearches = []SymmetricSearch{
	{Block: 16, Half: 32, Weighting: Squares},
	{Block: 16, Half: 4},
	{Block: 32, Half: 8},
	{Block: 32, Half: 16, Weighting: AboveAverage},
}

// searched returns blocks of each kind: weights, integers, of one value, of one sign,
// of any bits.
func searched(t testing.TB, r *rand.Rand, blocks, block int) []float32 {
	x := fenced[float32](t, blocks*block)
	for i := range blocks {
		b := x[i*block:][:block]
		kind, scale := r.IntN(8), float32(math.Exp2(float64(r.IntN(80)-40)))
		constant := float32(r.IntN(3)-1) * scale
		for j := range b {
			b[j] = float32(r.NormFloat64()) * scale
			switch kind {
			case 0:
				b[j] = float32(r.IntN(65) - 32)
			case 1:
				b[j] = constant
			case 2:
				b[j] = Abs(b[j])
			case 3:
				b[j] = -Abs(b[j])
			}
		}
		if kind == 4 {
			copy(b, samples(r, block))
		}
	}
	return x
}

// weighted returns numbers that are not negative, some of them zeros.
func weighted(t testing.TB, r *rand.Rand, n int) []float32 {
	w := fenced[float32](t, n)
	for i := range w {
		if r.IntN(9) > 0 {
			w[i] = float32(r.ExpFloat64())
		}
	}
	return w
}

// sameNumbers compares bits, but NaN equals NaN.
func sameNumbers(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, g := range got {
		if w := want[i]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
			t.Fatalf("%s: number %d of %d is %v, want %v", what, i, len(got), g, w)
		}
	}
}

func newFits(t testing.TB, n int) AffineFits {
	return AffineFits{fenced[float32](t, n), fenced[float32](t, n), fenced[float32](t, n), fenced[float32](t, n)}
}

func checkSameAffineSearch(t *testing.T, r *rand.Rand, s AffineSearch, blocks int) {
	t.Helper()
	x, w := searched(t, r, blocks, s.Block), weighted(t, r, blocks*s.Block)
	got, want := newFits(t, blocks), newFits(t, blocks)
	s.Find(got, x, w)
	s.findGo(want, x, w)
	sameNumbers(t, "Scale", got.Scale, want.Scale)
	sameNumbers(t, "Min", got.Min, want.Min)
	sameNumbers(t, "Inverse", got.Inverse, want.Inverse)
	sameNumbers(t, "Low", got.Low, want.Low)
}

func checkSameSymmetricSearch(t *testing.T, r *rand.Rand, s SymmetricSearch, blocks int) {
	t.Helper()
	x, w := searched(t, r, blocks, s.Block), weighted(t, r, blocks*s.Block)
	scale, inverse := fenced[float32](t, blocks), fenced[float32](t, blocks)
	wantScale, wantInverse := make([]float32, blocks), make([]float32, blocks)
	s.Find(scale, inverse, x, w)
	s.findGo(wantScale, wantInverse, x, w)
	sameNumbers(t, "scale", scale, wantScale)
	sameNumbers(t, "inverse", inverse, wantInverse)
}

func TestSearchesAreThoseOfPlainGo(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, n int) {
		if n > 100 {
			return
		}
		checkSameAffineSearch(t, r, affineSearches[n%len(affineSearches)], n)
		checkSameSymmetricSearch(t, r, symmetricSearches[n%len(symmetricSearches)], n)
	})
}

func FuzzSearchesAreThoseOfPlainGo(f *testing.F) {
	f.Add(uint64(1), uint8(17), uint8(0))
	f.Add(uint64(2), uint8(8), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, blocks, which uint8) {
		for range implementations(t) {
			n := 1 + int(blocks)%40
			checkSameAffineSearch(t, random(seed), affineSearches[int(which)%len(affineSearches)], n)
			checkSameSymmetricSearch(t, random(seed), symmetricSearches[int(which)%len(symmetricSearches)], n)
		}
	})
}

// A search finds what no scale and min nearby beat.
func TestAffineSearchIsGood(t *testing.T) {
	for range implementations(t) {
		r := random(7)
		s := affineSearches[0]
		const blocks = 20
		x, w := make([]float32, blocks*s.Block), make([]float32, blocks*s.Block)
		for i := range x {
			x[i], w[i] = float32(r.NormFloat64()), 1
		}
		s.Weighting = Given
		f := newFits(t, blocks)
		s.Find(f, x, w)
		for b := range blocks {
			x, w := x[b*s.Block:][:s.Block], w[b*s.Block:][:s.Block]
			q := make([]byte, s.Block)
			s.Codes(q, x, f.Inverse[b], f.Low[b])
			var found float32
			for i, c := range q {
				d := float32(f.Scale[b]*float32(c)) - f.Min[b] - x[i]
				found += d * d
			}
			low := min(0, x[0])
			high := x[0]
			for _, v := range x {
				low, high = min(low, v), max(high, v)
			}
			plain := s.error(x, w, s.Last/(high-low), low, (high-low)/s.Last, low)
			if !(found < plain) {
				t.Errorf("block %d: squared error %v, without a search %v", b, found, plain)
			}
		}
	}
}

func checkRecode(t *testing.T, r *rand.Rand, n int) {
	block := 16 * (1 + r.IntN(3))
	x := wild(t, r, n*block)
	scale, least := fenced[float32](t, n), fenced[float32](t, n)
	copy(scale, scales(r, n))
	scale[r.IntN(n)] = 0
	copy(least, samples(r, n))
	q, want := fenced[byte](t, len(x)), make([]byte, len(x))
	zero := r.IntN(33)
	last := zero + r.IntN(64)
	Recode(q, x, scale, least, zero, last)
	recodeGo(want, x, scale, least, block, zero, last)
	if !bytes.Equal(q, want) {
		t.Fatalf("codes of %d blocks of %d: %v, want %v", n, block, q, want)
	}
}

func checkSmallBlocks(t *testing.T, r *rand.Rand, n int) {
	x := searched(t, r, n, smallBlock)
	for what, f := range map[string]struct {
		size        int
		fast, plain func(dst []byte, x []float32)
	}{
		"QuantizeNibbles": {18, QuantizeNibbles, quantizeNibblesGo},
		"QuantizeBytes":   {34, QuantizeBytes, quantizeBytesGo},
	} {
		got, want := fenced[byte](t, n*f.size), make([]byte, n*f.size)
		f.fast(got, x)
		f.plain(want, x)
		for i := range got {
			if got[i] != want[i] {
				b := i / f.size
				t.Fatalf("%s: byte %d of block %v is %d, want %d", what, i%f.size, x[b*smallBlock:][:smallBlock], got[i], want[i])
			}
		}
	}
}

func BenchmarkAffineSearch(b *testing.B) {
	s := affineSearches[0]
	var f AffineFits
	benchAll(b, func(d *benchData) {
		n := len(d.x) / s.Block
		if len(f.Scale) != n {
			f = newFits(b, n)
		}
		s.Find(f, d.x, nil)
	})
}

func BenchmarkSymmetricSearch(b *testing.B) {
	s := symmetricSearches[0]
	benchAll(b, func(d *benchData) {
		n := len(d.x) / s.Block
		s.Find(d.y[:n], d.y[n:2*n], d.x, nil)
	})
}

func BenchmarkQuantizeNibbles(b *testing.B) {
	benchAll(b, func(d *benchData) { QuantizeNibbles(d.q[:len(d.x)/smallBlock*18], d.x) })
}

func BenchmarkQuantizeBytes(b *testing.B) {
	var dst []byte
	benchAll(b, func(d *benchData) {
		if n := len(d.x) / smallBlock * 34; len(dst) != n {
			dst = make([]byte, n)
		}
		QuantizeBytes(dst, d.x)
	})
}
