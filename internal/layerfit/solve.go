package layerfit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
	"onnxquant/internal/packing"
	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
	"onnxquant/internal/work"
)

// solver finds the codes of layers with the same inputs.
type solver struct {
	c      *calibration
	m      *moments
	mean   float64             // of the diagonal of h, as it was
	factor *secondorder.Factor // nil: there is no Hessian
	why    string
}

func newSolver(ctx context.Context, c *calibration, m *moments) (*solver, error) {
	s := &solver{c: c, m: m}
	h := m.h
	var err error
	if s.mean, err = secondorder.Normalize(h, m.k); err == nil {
		if c.Best {
			h = slices.Clone(h)
		}
		s.factor, err = secondorder.NewFactor(ctx, c.workers, h, m.k)
	}
	switch {
	case m.rows == 0 && m.bad == 0:
		s.why = "no sample reaches the layer"
	case m.rows == 0:
		s.why = "all its inputs hold NaN or infinity"
	case errors.Is(err, secondorder.ErrHessian), errors.Is(err, linalg.ErrNotPositive):
		s.why = err.Error()
	case err != nil:
		return nil, err
	}
	if s.why != "" {
		s.factor = nil
	}
	return s, nil
}

// outcome is what became of a layer.
type outcome struct {
	found, mse float64 // relative squared errors of the output on what is held out
	lost       bool    // mse is better
	broken     bool    // the weight has NaN or infinity
	note       string
}

// layer finds the codes of a weight.
func (s *solver) layer(ctx context.Context, w *quantize.Weight, t *target, to *quantize.Found) (out outcome, err error) {
	if s.factor == nil {
		out.note = s.why
		_, err = s.panels(ctx, w, t, to, false)
		return out, err
	}
	e, err := s.panels(ctx, w, t, to, true)
	if err != nil {
		return out, err
	}
	out.broken = e.broken
	if e.signal > 0 {
		out.found, out.mse = e.found/e.signal, e.mse/e.signal
	}
	if e.broken || out.found <= out.mse {
		return out, nil
	}
	out.lost, out.found = true, out.mse
	out.note = fmt.Sprintf("%s has an error of %.3g of the output on held-out samples, mse %.3g", s.c.algorithm(), math.Sqrt(e.found/e.signal), math.Sqrt(out.mse))
	_, err = s.panels(ctx, w, t, to, false)
	return out, err
}

// sums are squared errors, and squares, of outputs on the rows that are held out.
type sums struct {
	found, mse, signal float64
	broken             bool
}

// panels finds the codes of all columns, some at a time; by mse unless calibrated.
func (s *solver) panels(ctx context.Context, w *quantize.Weight, t *target, to *quantize.Found, calibrated bool) (total sums, err error) {
	width := s.c.panelWidth(w.K)
	n := int64(t.n)
	all := make([]sums, (n-1)/width+1)
	err = work.Each(ctx, s.c.workers, len(all), func(ctx context.Context, p *panel, i int) error {
		first := int64(i) * width
		p.solver, p.weight, p.target = s, w, t
		p.first, p.n = first, min(width, n-first)
		var err error
		all[i], err = p.run(ctx, to, calibrated)
		return err
	})
	for _, e := range all {
		total.found, total.mse, total.signal = total.found+e.found, total.mse+e.mse, total.signal+e.signal
		total.broken = total.broken || e.broken
	}
	return total, err
}

// perElement is how many bytes the buffers of a panel have for an element.
const perElement = 46

// panelWidth is how many columns a worker takes at a time.
func (c *calibration) panelWidth(k int64) int64 {
	return min(max(c.Memory/4/int64(c.workers)/(k*perElement), 16), 128)
}

// panel has the buffers of one worker, and the columns that it is at.
type panel struct {
	*solver
	weight   *quantize.Weight
	target   *target
	first, n int64

	columns  secondorder.Columns
	rounder  secondorder.Rounder
	search   secondorder.Search
	multiply linalg.Multiplier

	raw        []byte
	weights    []float32 // as they are stored
	by         []float32 // how far the target is from them, or decoded codes are
	transposed []float32
	outputs    []float32 // on the rows that are held out
	base       []float32 // the output of the weights, less what is wanted
}

func (p *panel) run(ctx context.Context, to *quantize.Found, calibrated bool) (e sums, err error) {
	if err := work.Stopped(ctx); err != nil {
		return e, err
	}
	w, k, n := p.weight, int(p.weight.K), int(p.n)
	f := secondorder.Format{Codec: w.Codec.(int4.Codec), Block: int(w.Block), Positive: w.PositiveScales}
	c := &p.columns
	c.Resize(k, n, f)
	if err := w.ReadColumns(&p.raw, c.Weights, p.first, p.n); err != nil {
		return e, err
	}
	if !finite(c.Weights) {
		return sums{broken: true}, nil
	}
	copy(buffer.Grow(&p.weights, int64(k*n)), c.Weights)
	c.FitBlocks(f, f.Codec.LeastAngle(f.Positive))
	if calibrated {
		e.signal = p.aim()
		e.mse = p.measure(f)
		if p.c.Best {
			if err := p.shift(ctx); err != nil {
				return e, err
			}
			c.FitGrid(f, p.m.h)
		}
		if p.c.Best {
			p.search.Find(p.factor, c, p.m.h, f)
		} else {
			p.factor.Round(&p.rounder, c, f)
		}
		e.found = p.measure(f)
	}
	return e, w.WriteColumns(to, p.first, p.n, c.Codes, c.Scales, c.Zeros)
}

// held is the matrix of the rows that are held out.
func (p *panel) held() linalg.Matrix { return linalg.Of(p.m.held, len(p.m.held)/p.m.k, p.m.k) }

// aim computes what the outputs of the weights lack on the rows that are held out. It returns the
// sum of the squares of what is wanted.
func (p *panel) aim() (signal float64) {
	held, n := p.held(), int(p.n)
	base := buffer.Grow(&p.base, int64(held.Rows*n))
	clear(base)
	p.multiply.Add(linalg.Of(base, held.Rows, n), 1, held, linalg.Of(p.weights, p.m.k, n))
	if p.target.g == nil {
		signal = squares(base)
		clear(base)
		return signal
	}
	for r := range held.Rows {
		y := p.target.held[r*p.target.n+int(p.first):][:n]
		signal += squares(y)
		for j, v := range y {
			base[r*n+j] -= v
		}
	}
	return signal
}

func squares(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// measure is the squared error of the outputs of codes, on the rows that are held out.
func (p *panel) measure(f secondorder.Format) float64 {
	held, k, n := p.held(), p.m.k, int(p.n)
	by := buffer.Grow(&p.by, int64(k*n))
	p.columns.Decode(f, by)
	for i, v := range p.weights {
		by[i] -= v
	}
	outputs := buffer.Grow(&p.outputs, int64(held.Rows*n))
	copy(outputs, p.base)
	p.multiply.Add(linalg.Of(outputs, held.Rows, n), 1, held, linalg.Of(by, k, n))
	return squares(outputs)
}

// shift moves the weights to those whose outputs are nearest to what is wanted: they get inputs
// that other layers' codes have changed.
func (p *panel) shift(ctx context.Context) error {
	k, n := p.m.k, int(p.n)
	by := buffer.Grow(&p.by, int64(k*n))
	scale := 1 / p.mean
	for i := range k {
		g := p.target.g[i*p.target.n+int(p.first):][:n]
		for j, v := range g {
			by[i*n+j] = float32(float64(v) * scale)
		}
	}
	p.multiply.Add(linalg.Of(by, k, n), -1, linalg.Of(p.m.h, k, k), linalg.Of(p.weights, k, n))
	transposed := buffer.Grow(&p.transposed, int64(k*n))
	packing.Transpose(transposed, by, k, n)
	if err := p.factor.Solve(ctx, 1, linalg.Of(transposed, n, k)); err != nil {
		return err
	}
	packing.Transpose(by, transposed, n, k)
	for i, v := range by {
		p.columns.Weights[i] += v
	}
	return nil
}
