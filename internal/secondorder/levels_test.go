package secondorder

import (
	"math"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/mx"
	"onnxquant/formats/qlora"
	"onnxquant/int4"
	"onnxquant/internal/blocks"
	"onnxquant/internal/linalg"
	"onnxquant/nvfp4"
)

type searcher interface {
	LeastError() *blocks.Search
	DecodeColumns(x []float32, q []byte, scale []float32, zero []byte)
}

// weighted is the squared error of codes as they will be decoded, weighted by the diagonal of h.
func (c *Columns) weighted(h []float32, f Format) (sum float64) {
	y := make([]float32, c.K*c.N)
	c.Decode(f, y)
	for i, v := range y {
		e, row := float64(v-c.Weights[i]), i/c.N
		sum += float64(h[row*(c.K+1)]+Damping) * e * e
	}
	return sum
}

// Rounding, descent and the search of both lower the error of levels, too. Scales stay numbers that
// can be stored, and codes are decoded as their codec does.
func TestLevels(t *testing.T) {
	for _, codec := range []searcher{qlora.Codec{}, qlora.Codec{Table: qlora.FP4, Type: dtype.Float16}, nvfp4.Codec{TensorScale: 0.003}, mx.Codec{}, mx.Codec{Format: mx.MXFP8E5M2}} {
		const k, n = 100, 19
		s := codec.LeastError()
		f := Format{
			Codec: int4.Codec{Type: s.Type}, Block: 16, Positive: true,
			Levels: NewLevels(s.Values, s.Codes, s.Outer, s.Store),
		}
		c, h := problem(t, k, n, f)
		c.FitBlocks(f, s)
		mse, weighted := c.measured(h, f), c.weighted(h, f)
		new(Descent).Improve(c, h, f, 4)
		descended := c.measured(h, f)
		factor, err := NewFactor(t.Context(), 2, slices.Clone(h), k)
		if err != nil {
			t.Fatal(err)
		}
		factor.Round(new(Rounder), c, f)
		if rounded := c.measured(h, f); !(rounded < 0.9*mse && descended < 0.9*mse) {
			t.Errorf("%+v: errors %.4g, rounded %.4g, descended %.4g", codec, mse, rounded, descended)
		}
		c.FitGrid(f, Importance(diagonalOf(h, k)))
		if fitted := c.weighted(h, f); !(fitted <= weighted) {
			t.Errorf("%+v: weighted error %.4g, with FitGrid %.4g", codec, weighted, fitted)
		}
		new(Search).Refine(factor, c, linalg.SymmetricOf(h, diagonalOf(h, k)), f)
		if found := c.measured(h, f); !(found < 0.9*descended) {
			t.Errorf("%+v: error %.4g after descent, %.4g after a search", codec, descended, found)
		}
		for _, scale := range c.Scales {
			if s.Store(scale) != scale || !(scale > 0) {
				t.Fatalf("%+v: scale %v", codec, scale)
			}
		}
		got, want := make([]float32, k*n), make([]float32, n)
		c.Decode(f, got)
		for i := range k {
			codec.DecodeColumns(want, c.Codes[i*n:][:n], c.Scales[i/f.Block*n:][:n], nil)
			if !slices.Equal(got[i*n:][:n], want) {
				t.Fatalf("%+v: row %d is decoded to %v, want %v", codec, i, got[i*n:][:n], want)
			}
		}
	}
}

// The search without branches finds the nearest value: of two as near the lower one.
func TestNearestLevel(t *testing.T) {
	var values [256]float32
	for _, n := range []int{1, 2, 3, 7, 8, 16, 200} {
		for i := range n {
			values[i] = float32((i*37)%n) - float32(n)/2
		}
		l := NewLevels(&values, n, 1, nil)
		for x := -float32(n); x <= float32(n); x += 0.25 {
			best := 0
			for i, v := range l.values {
				if math.Abs(float64(x-v)) < math.Abs(float64(x-l.values[best])) {
					best = i
				}
			}
			if at := l.at(x); at != best || values[l.codes[at]] != l.values[at] {
				t.Fatalf("%d values: %v becomes %v, want %v", n, x, l.values[at], l.values[best])
			}
		}
		for _, x := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
			if at := l.at(x); at != 0 && at != n-1 {
				t.Errorf("%d values: %v has index %d", n, x, at)
			}
		}
	}
}
