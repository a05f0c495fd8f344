package secondorder

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
)

// problem is a weight and the second moment of inputs that are correlated.
func problem(t testing.TB, k, n int, f Format) (*Columns, []float32) {
	return problemOf(t, 200, k, n, f)
}

// problemOf is problem with so many samples of the inputs.
func problemOf(t testing.TB, samples, k, n int, f Format) (*Columns, []float32) {
	r := rand.New(rand.NewPCG(uint64(k), uint64(n)))
	c := new(Columns)
	c.Resize(k, n, f)
	for i := range c.Weights {
		c.Weights[i] = f.Codec.Type.Round(float32(r.NormFloat64()))
	}
	x := linalg.Of(make([]float32, samples*k), samples, k)
	for i := range samples {
		common := r.NormFloat64()
		for j := range k {
			x.Data[i*k+j] = float32((r.NormFloat64() + 2*common) * math.Exp(float64(j%7)/3))
		}
	}
	h := make([]float32, k*k)
	if err := linalg.AddLower(t.Context(), 1, linalg.Of(h, k, k), 1, x.T(), x); err != nil {
		t.Fatal(err)
	}
	if _, err := Normalize(h, k); err != nil {
		t.Fatal(err)
	}
	return c, h
}

// copy returns the same columns.
func (c *Columns) copy(f Format) *Columns {
	d := new(Columns)
	d.Take(c, f)
	copy(d.Weights, c.Weights)
	return d
}

// measured is the sum of eᵀHe over the columns, of codes as they will be decoded.
func (c *Columns) measured(h []float32, f Format) (sum float64) {
	y := make([]float32, c.K*c.N)
	c.Decode(f, y)
	for j := range c.N {
		for a := range c.K {
			for b := range c.K {
				sum += float64(y[a*c.N+j]-c.Weights[a*c.N+j]) * float64(h[a*c.K+b]) * float64(y[b*c.N+j]-c.Weights[b*c.N+j])
			}
		}
	}
	return sum
}

var formats = []Format{
	{Codec: int4.Codec{Bits: 4, Signed: true}, Block: 16},
	{Codec: int4.Codec{Bits: 4, Signed: true}, Block: 16, Positive: true},
	{Codec: int4.Codec{Bits: 4, ZeroPoint: true}, Block: 32},
	{Codec: int4.Codec{Bits: 4, Signed: true, ZeroPoint: true}, Block: 32},
	{Codec: int4.Codec{Bits: 2, ZeroPoint: true, Type: dtype.Float16}, Block: 16},
	{Codec: int4.Codec{Bits: 4, Type: dtype.BFloat16}, Block: 100},
}

// Each step lowers the error: least squares, rounding that makes up for errors, descent.
func TestSteps(t *testing.T) {
	for _, f := range formats {
		const k, n = 100, 19
		c, h := problem(t, k, n, f)
		c.FitBlocks(f, f.Codec.LeastAngle(f.Positive))
		mse := c.measured(h, f)
		factor, err := NewFactor(t.Context(), 2, slices.Clone(h), k)
		if err != nil {
			t.Fatal(err)
		}
		factor.Round(new(Rounder), c, f)
		rounded := c.measured(h, f)
		new(Descent).Improve(c, h, f, 4)
		descended := c.measured(h, f)
		if !(rounded < 0.8*mse && descended < 0.995*rounded) {
			t.Errorf("%+v: errors %.4g, rounded %.4g, descended %.4g", f, mse, rounded, descended)
		}
		c.FitGrid(f, Importance(diagonalOf(h, k)))
		factor.Round(new(Rounder), c, f)
		new(Descent).Improve(c, h, f, 12)
		if grid := c.measured(h, f); !(grid < 1.05*descended) {
			t.Errorf("%+v: error %.4g, from the grid %.4g", f, descended, grid)
		}
		for _, s := range c.Scales {
			if f.Positive && s < 0 {
				t.Fatalf("%+v: a negative scale", f)
			}
		}
	}
}

// Where samples are few and inputs hardly vary, almost any scale is as good: it stays near the weights.
func TestFreeScales(t *testing.T) {
	for _, f := range formats {
		const k, n = 100, 200
		c, h := problemOf(t, 3, k, n, f)
		for i := range h {
			for _, input := range []int{i % k, i / k} {
				if input < f.Block {
					h[i] /= 50
				}
			}
		}
		factor, err := NewFactor(t.Context(), 2, slices.Clone(h), k)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string) {
			y := make([]float32, k*n)
			c.Decode(f, y)
			for from := 0; from < k; from += f.Block {
				for j := range n {
					var w, v float32
					for i := from; i < min(from+f.Block, k); i++ {
						w, v = max(w, c.Weights[i*n+j], -c.Weights[i*n+j]), max(v, y[i*n+j], -y[i*n+j])
					}
					if v > 2*mostReach*w {
						t.Errorf("%+v, %s: a block of weights up to %g reaches %g", f, what, w, v)
						return
					}
				}
			}
		}
		c.FitGrid(f, Importance(diagonalOf(h, k)))
		new(Search).Find(factor, c, h, f, 4)
		check("search")
		c.FitGrid(f, Importance(diagonalOf(h, k)))
		new(Search).Refine(factor, c, linalg.SymmetricOf(h, diagonalOf(h, k)), f)
		check("refinement")
		new(Clip).Find(c, h, f)
		check("clip")
	}
}

// A search ends below a single round of twice as many passes, and knows the error of its codes. Refine is as good as
// four rounds of Find.
func TestSearch(t *testing.T) {
	s := new(Search)
	for _, f := range formats {
		const k, n = 100, 19
		c, h := problem(t, k, n, f)
		factor, err := NewFactor(t.Context(), 2, slices.Clone(h), k)
		if err != nil {
			t.Fatal(err)
		}
		c.FitGrid(f, Importance(diagonalOf(h, k)))
		factor.Round(new(Rounder), c, f)
		new(Descent).Improve(c, h, f, 2*passes)
		once := c.measured(h, f)
		search := func(find func()) float64 {
			c.FitGrid(f, Importance(diagonalOf(h, k)))
			find()
			found := c.measured(h, f)
			if !(found < once) {
				t.Errorf("%+v: error %.4g, of a single round %.4g", f, found, once)
			}
			var sum float64
			for _, e := range s.errors {
				sum += e
			}
			if math.Abs(sum-found) > 1e-3*found {
				t.Errorf("%+v: error %.6g, told as %.6g", f, found, sum)
			}
			return found
		}
		found := search(func() { s.Find(factor, c, h, f, 4) })
		if refined := search(func() { s.Refine(factor, c, linalg.SymmetricOf(h, diagonalOf(h, k)), f) }); refined > 1.02*found {
			t.Errorf("%+v: error %.4g, refined %.4g", f, found, refined)
		}
	}
}

// A column has the same codes whatever lies beside it.
func TestColumnsAreIndependent(t *testing.T) {
	f := formats[2]
	const k, n = 150, 40
	c, h := problem(t, k, n, f)
	factor, err := NewFactor(t.Context(), 1, slices.Clone(h), k)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := linalg.WholeSymmetric(h, diagonalOf(h, k)).Packed(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	searches := map[string]func(c *Columns){
		"packed": func(c *Columns) { new(Search).Refine(factor, c, packed, f) },
		"find":   func(c *Columns) { new(Search).Find(factor, c, h, f, 4) },
		"refine": func(c *Columns) { new(Search).Refine(factor, c, linalg.SymmetricOf(h, diagonalOf(h, k)), f) },
	}
	for name, search := range searches {
		c.FitGrid(f, Importance(diagonalOf(h, k)))
		search(c)
		for _, part := range [][2]int{{0, 1}, {3, 20}, {39, 40}} {
			p := new(Columns)
			p.Resize(k, part[1]-part[0], f)
			for i := range k {
				copy(p.Weights[i*p.N:][:p.N], c.Weights[i*n+part[0]:])
			}
			p.FitGrid(f, Importance(diagonalOf(h, k)))
			search(p)
			for i := range k {
				if !slices.Equal(p.Codes[i*p.N:][:p.N], c.Codes[i*n+part[0]:i*n+part[1]]) {
					t.Fatalf("%s: columns %v: other codes in row %d", name, part, i)
				}
			}
		}
	}
}

// A Hessian and its factor in one array are those of two arrays, and so are codes.
func TestSplit(t *testing.T) {
	f := formats[2]
	const k, n = 600, 20
	c, h := problem(t, k, n, f)
	factor, err := NewFactor(t.Context(), 2, slices.Clone(h), k)
	if err != nil {
		t.Fatal(err)
	}
	damped := slices.Clone(h)
	Damp(damped, k, SlightDamping)
	both, in, err := Split(t.Context(), 2, slices.Clone(h), k, SlightDamping)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(in.order, factor.order) || !slices.Equal(both.Diagonal, diagonalOf(damped, k)) {
		t.Fatal("another order or diagonal")
	}
	for i := range k {
		if !slices.Equal(in.l.Data[i*k:][:i+1], factor.l.Data[i*k:][:i+1]) || !slices.Equal(both.Right(i), damped[i*k+i+1:(i+1)*k]) {
			t.Fatalf("row %d differs", i)
		}
	}
	for _, s := range []Format{f, {Codec: f.Codec, Block: k}} {
		c.Resize(k, n, s)
		c.FitGrid(s, Importance(both.Diagonal))
		other := c.copy(s)
		new(Search).Refine(in, c, both, s)
		beside, apart, err := Beside(t.Context(), 2, slices.Clone(h), k, SlightDamping)
		if err != nil {
			t.Fatal(err)
		}
		new(Search).Refine(apart, other, beside, s)
		if !slices.Equal(c.Codes, other.Codes) || !slices.Equal(c.Scales, other.Scales) {
			t.Errorf("block %d: other codes", s.Block)
		}
	}
}

func TestSolve(t *testing.T) {
	const k = 130
	_, h := problem(t, k, 1, formats[0])
	factor, err := NewFactor(t.Context(), 2, slices.Clone(h), k)
	if err != nil {
		t.Fatal(err)
	}
	x := linalg.Of(make([]float32, 3*k), 3, k)
	for i := range x.Data {
		x.Data[i] = float32(i%11) - 5
	}
	y := linalg.Of(slices.Clone(x.Data), 3, k)
	if err := factor.Solve(t.Context(), 2, y); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for j := range k {
			sum := Damping * float64(y.Data[i*k+j])
			for m := range k {
				sum += float64(h[j*k+m]) * float64(y.Data[i*k+m])
			}
			if math.Abs(sum-float64(x.Data[i*k+j])) > 1e-2 {
				t.Fatalf("H·y is %v at %d, %d; want %v", sum, i, j, x.Data[i*k+j])
			}
		}
	}
}

func TestHessianWithoutMeaning(t *testing.T) {
	for name, v := range map[string]float32{"zeros": 0, "NaN": float32(math.NaN()), "infinity": float32(math.Inf(1)), "negative": -1} {
		h := make([]float32, 16)
		for i := range 4 {
			h[i*5] = v
		}
		if _, err := NewFactor(t.Context(), 1, h, 4); err != ErrHessian {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Inputs that are all the same, and inputs that are always zero, have a Hessian of low rank.
func TestLowRank(t *testing.T) {
	f := formats[0]
	const k, n = 60, 5
	c, h := problem(t, k, n, f)
	for i := range k {
		for j := range k {
			h[i*k+j] = 0
			if i < k/2 && j < k/2 {
				h[i*k+j] = 1
			}
		}
	}
	factor, err := NewFactor(t.Context(), 1, slices.Clone(h), k)
	if err != nil {
		t.Fatal(err)
	}
	c.FitGrid(f, Importance(diagonalOf(h, k)))
	factor.Round(new(Rounder), c, f)
	before := c.measured(h, f)
	new(Descent).Improve(c, h, f, 4)
	if after := c.measured(h, f); !(after <= before) {
		t.Errorf("error %v, then %v", before, after)
	}
	for _, s := range c.Scales {
		if s == 0 || s-s != 0 {
			t.Fatalf("a scale is %v", s)
		}
	}
}

// BenchmarkRound is a large layer of a language model, given its Hessian. It takes a minute.
func BenchmarkRound(b *testing.B) {
	const k, n, width = 11008, 4096, 128
	f := Format{Codec: int4.Codec{Bits: 4, Signed: true}, Block: 128}
	r := rand.New(rand.NewPCG(1, 2))
	h := make([]float32, k*k)
	for i := range k {
		for j := range i + 1 {
			h[i*k+j] = r.Float32() / k
		}
		h[i*k+i] = 1 + r.Float32()
	}
	for b.Loop() {
		factor, err := NewFactor(b.Context(), 2, h, k)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("factor: %v", b.Elapsed())
		type worker struct {
			Columns
			Rounder
		}
		err = work.Each(b.Context(), 2, n/width, func(_ context.Context, w *worker, _ int) error {
			w.Resize(k, width, f)
			for i := range w.Weights {
				w.Weights[i] = float32(i%1001)/500 - 1
			}
			w.FitBlocks(f, f.Codec.LeastAngle(false))
			factor.Round(&w.Rounder, &w.Columns, f)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// The slope that rounding leaves is the product of the Hessian and the errors, also where its diagonal is not the factor's.
func TestSlope(t *testing.T) {
	for _, f := range formats {
		const k, n = 300, 19
		c, h := problem(t, k, n, f)
		c.FitBlocks(f, f.Codec.LeastAngle(f.Positive))
		s, factor, err := Beside(t.Context(), 2, h, k, SlightDamping)
		if err != nil {
			t.Fatal(err)
		}
		r := new(Rounder)
		factor.Round(r, c, f)
		codes, errs, got, want := make([]float32, k*n), make([]float32, k*n), make([]float32, k*n), make([]float32, k*n)
		for i := range k {
			f.multiples(codes[i*n:][:n], c.Codes[i*n:][:n], c.Zeros[i/f.Block*n:])
			c.errorsOf(i, errs[i*n:][:n], codes, f)
		}
		new(linalg.SymmetricMultiplier).AddRight(linalg.Of(want, n, k), c.matrix(errs).T(), s, 0, 0)
		factor.slope(r, c, got, codes, errs, s.Diagonal, f)
		var off, all float64
		for i, v := range want {
			off, all = off+float64(got[i]-v)*float64(got[i]-v), all+float64(v)*float64(v)
		}
		if !(off < 1e-8*all) {
			t.Errorf("%+v: a slope off by %.2g of itself", f, math.Sqrt(off/all))
		}
	}
}
