package int4

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
)

// narrow runs a search on one block, cut into pieces of n elements.
func narrow(s Search, lo, hi float32, x []float32, n int) (float32, float32) {
	l, h := []float32{lo}, []float32{hi}
	s.Reset(l, h)
	for s.Next() {
		for piece := range slices.Chunk(x, n) {
			s.Piece(0, piece)
		}
	}
	return l[0], h[0]
}

// squaredError is that of a block's codes for a range.
func squaredError(c Codec, lo, hi float32, x []float32) float64 {
	scale, zero, q := []float32{0}, []byte{0}, make([]byte, len(x))
	c.Scales(scale, zero, []float32{lo}, []float32{hi})
	return c.QuantizeBlocks(q, x, scale, zero, len(x), len(x)).SumSqErr
}

func randomBlock(r *rand.Rand, n int, t dtype.DType) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	if r.IntN(2) == 0 {
		x[r.IntN(n)] *= 20
	}
	if r.IntN(3) == 0 {
		for i := range x {
			x[i] = max(x[i], -x[i])
		}
	}
	t.RoundAll(x)
	return x
}

// observed returns the range of a block.
func observed(c Codec, x []float32) (lo, hi float32) {
	l, h := []float32{0}, []float32{0}
	c.ObserveBlocks(l, h, x, len(x), len(x))
	return l[0], h[0]
}

// The ranges found are the best of those that the comment says are tried, and how a
// block is cut makes no difference.
func TestLeastError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		for c := range codecs {
			x := randomBlock(r, 1+r.IntN(200), c.Type)
			lo, hi := observed(c, x)
			least, wantLo, wantHi := math.Inf(1), lo, hi
			try := func(l, h float32) {
				if e := squaredError(c, l, h, x); e < least {
					least, wantLo, wantHi = e, l, h
				}
			}
			if c.ZeroPoint {
				for k := 32; k >= 8; k-- {
					try(lo*float32(k)/32, hi*float32(k)/32)
				}
				for base, k := wantHi, 31; k >= 16; k-- {
					try(wantLo, base*float32(k)/32)
				}
				for base, k := wantLo, 31; k >= 16; k-- {
					try(base*float32(k)/32, wantHi)
				}
			} else {
				for _, sign := range []float32{1, -1} {
					for k := 48; k >= 12 && (sign > 0 || c.Bits == 2); k-- {
						f := sign * (1 - float32(48-k)/48)
						try(lo*f, hi*f)
					}
				}
			}
			if baseLo, baseHi := wantLo, wantHi; c.Bits == 8 {
				for k := 129; k <= 136; k++ {
					f := float32(k) / 128
					try(max(baseLo*f, -math.MaxFloat32), min(baseHi*f, math.MaxFloat32))
				}
			}
			s := c.LeastError()
			for _, cut := range []int{8, 64, 1000} {
				gotLo, gotHi := narrow(s, lo, hi, x, cut)
				if got := squaredError(c, gotLo, gotHi, x); got != least {
					t.Fatalf("%+v, cut %d: %v … %v has the error %v; %v … %v has %v", c, cut, gotLo, gotHi, got, wantLo, wantHi, least)
				}
			}
			if whole := squaredError(c, lo, hi, x); least > whole {
				t.Fatalf("%+v: worse than the whole range", c)
			}
		}
	}
}

// Errors of many blocks of 2 bits cancel out, because scales have both signs.
func TestTwoBitsHaveNoBias(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const blocks, block = 2000, 32
	for _, c := range []Codec{{Bits: 2, Signed: true}, {Bits: 2}, {Bits: 2, Signed: true, Scale: dtype.Int8, Step: 1.0 / 64}} {
		sum, s := 0.0, c.LeastError()
		q, decoded := make([]byte, block), make([]float32, block)
		for range blocks {
			x := make([]float32, block)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			lo, hi := observed(c, x)
			_, hi = narrow(s, lo, hi, x, block)
			scale, zero := []float32{0}, []byte{0}
			c.Scales(scale, zero, []float32{0}, []float32{hi})
			c.QuantizeBlocks(q, x, scale, zero, block, block)
			c.DecodeBlocks(decoded, q, scale, zero, block, block)
			for i := range x {
				sum += float64(decoded[i] - x[i])
			}
		}
		if mean := sum / (blocks * block); math.Abs(mean) > 0.01 {
			t.Errorf("%+v: the errors have a mean of %.3f standard deviations", c, mean)
		}
	}
}

func TestPercentileOfBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 60 {
		for c := range codecs {
			x := randomBlock(r, 1+r.IntN(300), c.Type)
			for _, p := range []float64{100, 99.9, 97, 80, 50} {
				lo, hi := observed(c, x)
				sorted := slices.Sorted(slices.Values(x))
				n := len(x)
				i := min(int(p/100*float64(n)), n-1)
				i = max(i, n-1-i)
				wantLo, wantHi := min(sorted[n-1-i], 0), max(sorted[i], 0)
				if !c.ZeroPoint {
					wantLo, wantHi = lo, max(wantHi, -wantLo)
				}
				if wantHi == 0 && (!c.ZeroPoint || wantLo == 0) {
					wantLo, wantHi = lo, hi
				}
				for _, cut := range []int{8, 1000} {
					if gotLo, gotHi := narrow(c.Percentile(p), lo, hi, x, cut); gotLo != wantLo || gotHi != wantHi {
						t.Fatalf("%+v, %v of %d elements: %v … %v, want %v … %v", c, p, n, gotLo, gotHi, wantLo, wantHi)
					}
				}
			}
		}
	}
}

// A search serves any number of blocks, one set after another.
func TestSearchOfSeveralBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	c := Codec{Bits: 4, ZeroPoint: true, Type: dtype.Float32}
	for _, s := range []Search{c.LeastError(), c.Percentile(90)} {
		for _, n := range []int{5, 1, 9} {
			blocks := make([][]float32, n)
			lo, hi := make([]float32, n), make([]float32, n)
			for i := range blocks {
				blocks[i] = randomBlock(r, 1+r.IntN(50), c.Type)
				lo[i], hi[i] = observed(c, blocks[i])
			}
			wantLo, wantHi := slices.Clone(lo), slices.Clone(hi)
			for i, b := range blocks {
				wantLo[i], wantHi[i] = narrow(s, lo[i], hi[i], b, 1000)
			}
			s.Reset(lo, hi)
			for s.Next() {
				for i, b := range blocks {
					s.Piece(i, b)
				}
			}
			if !slices.Equal(lo, wantLo) || !slices.Equal(hi, wantHi) {
				t.Errorf("%d blocks at once: %v %v, one by one %v %v", n, lo, hi, wantLo, wantHi)
			}
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	const block = 32
	x := make([]float32, 1<<16)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for _, c := range []Codec{{Bits: 4, Signed: true}, {Bits: 4, ZeroPoint: true}} {
		for name, s := range map[string]Search{"mse": c.LeastError(), "percentile": c.Percentile(90)} {
			name += map[bool]string{true: "/zero"}[c.ZeroPoint]
			b.Run(name, func(b *testing.B) {
				b.SetBytes(4 * int64(len(x)))
				for b.Loop() {
					for at := 0; at < len(x); at += block {
						lo, hi := observed(c, x[at:at+block])
						narrow(s, lo, hi, x[at:at+block], block)
					}
				}
			})
		}
	}
}
