package secondorder

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"onnxquant/int4"
	"onnxquant/internal/linalg"
	"onnxquant/internal/work"
)

var layerK = flag.Int("layer.k", 1024, "elements of a column in BenchmarkParts")

// BenchmarkParts measures the processor time of what finds the codes of a layer: 512 rows of inputs, the factor, and 128
// columns by each algorithm. BenchmarkLayer of package layerfit measures whole layers.
func BenchmarkParts(b *testing.B) {
	const rows, n = 512, 128
	k, f := *layerK, Format{Codec: int4.Codec{Bits: 4, Signed: true}, Block: 32}
	r := rand.New(rand.NewPCG(1, 2))
	x := linalg.Of(make([]float32, rows*k), rows, k)
	for i := range rows {
		common := r.NormFloat64()
		for j := range k {
			x.Data[i*k+j] = float32((r.NormFloat64() + common) * math.Exp(float64(j%7)/3))
		}
	}
	c := new(Columns)
	c.Resize(k, n, f)
	for i := range c.Weights {
		c.Weights[i] = float32(r.NormFloat64())
	}
	h, y := make([]float32, k*k), linalg.Of(slices.Clone(x.Data[:rows*n]), rows, n)
	var factor *Factor
	var m linalg.Multiplier
	line := fmt.Sprintf("K %d", k)
	step := func(what string, do func()) {
		start := work.Spent()
		do()
		line += fmt.Sprintf(", %s %.3f s", what, (work.Spent() - start).Seconds())
	}
	for b.Loop() {
		clear(h)
		step("sum of 512 rows", func() {
			linalg.AddLower(b.Context(), 1, linalg.Of(h, k, k), 1, x.T(), x)
		})
		step("sum for the targets of 128 columns", func() {
			m.Add(linalg.Of(make([]float32, k*n), k, n), 1, x.T(), y)
		})
		step("outputs of 512 rows", func() {
			m.Add(linalg.Of(make([]float32, rows*n), rows, n), 1, x, linalg.Of(c.Weights, k, n))
		})
		step("factor", func() {
			var err error
			Normalize(h, k)
			if factor, err = NewFactor(b.Context(), 1, slices.Clone(h), k); err != nil {
				b.Fatal(err)
			}
			Damp(h, k, SlightDamping)
		})
		step("shift", func() { factor.Solve(b.Context(), 1, linalg.Of(slices.Clone(x.Data[:n*k]), n, k)) })
		step("mse", func() { c.FitBlocks(f, f.Codec.LeastAngle(f.Positive)) })
		step("gptq", func() { factor.Round(new(Rounder), c, f) })
		step("grid", func() { c.FitGrid(f, Importance(diagonalOf(h, k))) })
		start := c.copy(f)
		second := c.copy(f)
		third := c.copy(f)
		var packed linalg.Symmetric
		step("packing", func() { packed, _ = linalg.WholeSymmetric(h, diagonalOf(h, k)).Packed(b.Context(), 1) })
		step("Refine", func() { new(Search).Refine(factor, c, packed, f) })
		step("Refine without packing", func() { new(Search).Refine(factor, third, linalg.WholeSymmetric(h, diagonalOf(h, k)), f) })
		step("Refine in one triangle", func() { new(Search).Refine(factor, second, linalg.SymmetricOf(h, diagonalOf(h, k)), f) })
		refined := c.sum(h)
		step("Find", func() { new(Search).Find(factor, start, h, f, 4) })
		line += fmt.Sprintf(", error of Refine %.4f of Find's", refined/start.sum(h))
	}
	b.Log(line)
}

// sum is the sum of eᵀHe.
func (c *Columns) sum(h []float32) (sum float64) {
	f := Format{Codec: int4.Codec{Bits: 4, Signed: true}, Block: 32}
	e, he := make([]float32, c.K*c.N), make([]float32, c.K*c.N)
	c.Decode(f, e)
	for i, w := range c.Weights {
		e[i] -= w
	}
	new(linalg.Multiplier).Add(c.matrix(he), 1, linalg.Of(h, c.K, c.K), c.matrix(e))
	for i, v := range e {
		sum += float64(v) * float64(he[i])
	}
	return sum
}
