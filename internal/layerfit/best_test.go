package layerfit

import (
	"testing"

	"onnxquant/internal/secondorder"
	"onnxquant/spec"
)

// On the held-out rows of a layer the codes of best are never worse than those of gptq for the same inputs and outputs, and the
// columns with the codes of gptq are counted. Long columns have one round.
func TestBestKeepsBetterCodes(t *testing.T) {
	var simpler int64
	for _, size := range []struct{ k, rows, held, times int }{{64, 96, 2, 12}, {2056, 256, 2, 1}} {
		for attempt := range uint64(size.times) {
			const n = 16
			in := newLayerInputs(size.k, n, attempt+1)
			of := newLayerCost(t, spec.Best, in)
			in.next()
			for r := range size.rows + size.held {
				if err := of.add(t, in, r, r >= size.rows); err != nil {
					t.Fatal(err)
				}
			}
			if err := of.moments.flush(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			s, err := newSolver(t.Context(), of.c, of.moments)
			if err != nil {
				t.Fatal(err)
			}
			target, w := of.moments.targets[0], of.layer.Weight
			gptq := gptqError(t, s, target, of)
			e, err := s.panels(t.Context(), w, 0, target, of.c.store.add(w))
			if err != nil {
				t.Fatal(err)
			}
			if e.columns != n || e.found > gptq || (e.simpler == n) != (e.found == gptq) || e.simpler%n != 0 {
				t.Errorf("K %d: error %v, of gptq %v; %d of %d columns with gptq", size.k, e.found, gptq, e.simpler, e.columns)
			}
			simpler += e.simpler
		}
	}
	if simpler == 0 {
		t.Error("gptq is never better")
	}
}

// gptqError is the squared error of the codes of gptq on the held-out rows.
func gptqError(t *testing.T, s *solver, target *target, of *layerCost) float64 {
	w := of.layer.Weight
	f := w.SecondOrder(w.Codec)
	p := &panel{solver: s, weight: w, target: target, n: w.Inner}
	p.columns.Resize(int(w.K), int(w.Inner), f)
	codes := p.coderOf(f)
	if err := w.ReadColumns(&p.raw, p.columns.Weights, 0, w.Inner); err != nil {
		t.Fatal(err)
	}
	p.weights = append(p.weights, p.columns.Weights...)
	if err := codes.mse(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.wantedOutputs()
	s.factor.Round(new(secondorder.Rounder), &p.columns, f)
	codes.takeCodes()
	return p.measure(codes)
}
