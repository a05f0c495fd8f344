package blocks_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/errstat"
	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/internal/blocks"
	"onnxquant/internal/kernels"
	"onnxquant/nvfp4"
)

// searched are blocks that a search may stumble over, and some of noise.
func searched(t dtype.DType) [][]float32 {
	const tiny, huge = 0x1p-14, 0x1p15
	list := [][]float32{{0, 0, 0}, {1}, {-3, 3}, {tiny, tiny / 8, 0}, {-huge, huge, 1}, {1, 1, 1, 1}, {tiny, 1}, {-1, 0, 0.5}}
	r := rand.New(rand.NewPCG(4, 5))
	for range 60 {
		x := make([]float32, 1+r.IntN(64))
		scale := math.Exp2(float64(r.IntN(12) - 8))
		for i := range x {
			x[i] = t.Round(float32(scale * r.NormFloat64()))
		}
		list = append(list, x)
	}
	return list
}

// No block gets a larger error than by the plain rule, as decoded, some get a smaller one, and scales
// can be stored.
func TestSearch(t *testing.T) {
	for _, typ := range weightTypes {
		for c := range codecs(typ, 0x1p15) {
			s, ok := c.(interface{ LeastError() *blocks.Search })
			if !ok {
				continue
			}
			search, better, all := s.LeastError(), 0, searched(typ)
			for _, x := range all {
				n := len(x)
				hi, rule := []float32{0}, []float32{0}
				c.ObserveBlocks(nil, hi, x, n, n)
				if !c.Scales(rule, nil, nil, hi) {
					t.Fatalf("%v: %v is not finite", c, x)
				}
				q, plain := make([]byte, n), make([]byte, n)
				before := c.QuantizeBlocks(plain, x, rule, nil, n, n).SumSqErr
				scale, _ := search.Fit(q, x)
				after := squaredError(c, q, x, scale)
				if after > before {
					t.Errorf("%T %+v: %v: error %g, rounded to nearest %g", c, c, x, after, before)
				}
				if after < before {
					better++
				}
				if stored := storable(c, scale); stored != scale {
					t.Errorf("%T: scale %v, as stored %v", c, scale, stored)
				}
				if again, _ := search.Fit(slices.Clone(q), x); again != scale {
					t.Errorf("%T: scale %v, then %v", c, scale, again)
				}
			}
			if m, ok := c.(mx.Codec); ok && m.Format != mx.MXFP4 {
				continue // numbers of 8 bits are as dense with half the scale
			}
			if better == 0 {
				t.Errorf("%T %+v: %d of %d blocks are better", c, c, better, len(all))
			}
		}
	}
}

// storable is a scale as it will be stored.
func storable(c codec, scale float32) float32 {
	switch c := c.(type) {
	case nvfp4.Codec:
		return fp8.E4M3FN.Decode(nvfp4.ScaleByte(scale))
	case mx.Codec:
		return mx.DecodeE8M0(mx.ScaleByte(scale))
	case fp8.Codec:
		return c.Type.Round(scale)
	case qlora.Codec:
		return c.Type.Round(scale)
	}
	return 0
}

func squaredError(c codec, q []byte, x []float32, scale float32) float64 {
	y := make([]float32, len(x))
	c.DecodeBlocks(y, q, []float32{scale}, nil, len(x), len(x))
	var s errstat.Stats
	s.Add(x, y)
	return s.SumSqErr
}

// A search that leaves out what cannot win finds what a search through all tries in turn finds.
func TestSearchIsThatOfAllTries(t *testing.T) {
	for _, typ := range weightTypes {
		for c := range codecs(typ, 0x1p15) {
			l, ok := c.(interface{ LeastError() *blocks.Search })
			if !ok {
				continue
			}
			s := l.LeastError()
			s.Free = false
			for _, x := range searched(typ) {
				q := make([]byte, len(x))
				scale, _ := s.Fit(q, x)
				if want, codes := tryAll(s, x); scale != want || !slices.Equal(q, codes) {
					t.Errorf("%T %+v: %v: scale %v, codes %v, want %v, %v", c, c, x, scale, q, want, codes)
				}
			}
		}
	}
}

func tryAll(s *blocks.Search, x []float32) (best float32, codes []byte) {
	measure := func(scale float32) (q []byte, squared, miss float64) {
		q = make([]byte, len(x))
		if s.Plain != nil && codes == nil {
			squared = s.Plain(q, x, []float32{scale})
		} else {
			var sums kernels.ErrorSums
			s.Quantize(q, x, []float32{scale}, &sums)
			squared, _, _ = sums.Totals()
		}
		var xx, xv float64
		for i, c := range q {
			v, w := float64(s.Values[c]), float64(x[i])
			xx, xv = xx+float64(w*w), xv+float64(w*v)
		}
		d := float64(float64(scale*s.Outer)*xv) - xx
		return q, squared, squared + float64(d*d)/xx
	}
	best = s.Scale(kernels.AbsMax(0, x))
	q, worst, least := measure(best)
	if codes = q; worst == 0 {
		return best, codes
	}
	for _, scale := range s.Tries(nil, best) {
		if scale < 0x1p-126 || math.IsInf(float64(scale), 0) {
			continue
		}
		if q, squared, miss := measure(scale); squared <= worst && miss < least {
			best, codes, least = scale, q, miss
		}
	}
	return best, codes
}
