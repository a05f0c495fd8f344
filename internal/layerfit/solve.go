package layerfit

import (
	"context"
	"errors"
	"math"

	"onnxquant/internal/buffer"
	"onnxquant/internal/linalg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/secondorder"
	"onnxquant/internal/work"
	"onnxquant/spec"
)

// solver finds the codes of layers with the same inputs.
type solver struct {
	c      *calibration
	m      *moments
	mean   float64 // of the diagonal of h, before it was normalized
	known  bool    // there is a Hessian
	factor *secondorder.Factor
	h      linalg.Symmetric // of best: in the array of the factor
	why    string
}

func newSolver(ctx context.Context, c *calibration, m *moments) (*solver, error) {
	s := &solver{c: c, m: m}
	h := m.h
	var err error
	if s.mean, err = secondorder.Normalize(h, m.k); err == nil && c.Quantized {
		more := secondorder.Damping * float64(m.k) / float64(m.rows) // few rows say little about other ones
		secondorder.Damp(h, m.k, float32(more))
		s.mean *= 1 + more
	}
	switch {
	case err != nil:
	case c.Algorithm == spec.Best && c.copies(int64(m.k)):
		s.h, s.factor, err = secondorder.Beside(ctx, c.workers, h, m.k, secondorder.SlightDamping)
		if err == nil && c.packs(int64(m.k)) {
			s.h, err = s.h.Packed(ctx, c.workers)
		}
	case c.Algorithm == spec.Best:
		s.h, s.factor, err = secondorder.Split(ctx, c.workers, h, m.k, secondorder.SlightDamping)
	case c.Algorithm == spec.AWQ:
		secondorder.Damp(h, m.k, secondorder.Damping)
	default:
		s.factor, err = secondorder.NewFactor(ctx, c.workers, h, m.k)
	}
	switch {
	case m.unknown != "":
		s.why = m.unknown
	case m.rows == 0 && m.bad == 0:
		s.why = "no sample reaches the layer"
	case m.rows == 0:
		s.why = "all its inputs hold NaN or infinity"
	case errors.Is(err, secondorder.ErrHessian), errors.Is(err, linalg.ErrNotPositive):
		s.why = err.Error()
	case err != nil:
		return nil, err
	}
	s.known = s.why == ""
	return s, nil
}

// copies reports whether there is memory for a Hessian and its factor in two arrays. The codes are the same.
func (c *calibration) copies(k int64) bool { return 4*k*k <= max(c.Memory, c.Alone)/4 }

// packs reports whether there is also memory for a packed copy of the Hessian. The codes are the same.
func (c *calibration) packs(k int64) bool { return 8*k*k <= max(c.Memory, c.Alone)/4 }

// sums are squared errors, and squares, of outputs on the rows that are held out.
type sums struct {
	found, mse, signal float64
	columns, simpler   int64 // columns for which best was tried, and those for which gptq is better
	calibrated         bool  // false: all codes are those of mse
	broken             bool  // the weight has NaN or infinity
}

func (s *sums) add(e sums) {
	s.found, s.mse, s.signal = s.found+e.found, s.mse+e.mse, s.signal+e.signal
	s.columns, s.simpler = s.columns+e.columns, s.simpler+e.simpler
	s.calibrated, s.broken = s.calibrated || e.calibrated, s.broken || e.broken
}

// comparable reports whether there are relative errors: outputs may overflow.
func (s sums) comparable() bool {
	return s.signal > 0 && s.mse > 0 && s.signal+s.mse+s.found < math.Inf(1)
}

// mse finds the codes of mse.
func (c *calibration) mse(ctx context.Context, l Layer, to *quantize.Found) error {
	s := &solver{c: c, m: &moments{k: int(l.Weight.K)}}
	columns, parts := l.columns()*l.Parts(), 1
	if l.Weight.Inner > 1 { // columns that are taken at once are of one matrix
		columns, parts = l.columns(), l.Parts()
	}
	for part := range parts {
		if _, err := s.panels(ctx, l.Weight, part, newTarget(0, columns, false), to); err != nil {
			return err
		}
	}
	return nil
}

// panels finds the codes of a part of the columns of a weight, one panel at a time. Without a Hessian
// it finds the codes of mse.
func (s *solver) panels(ctx context.Context, w *quantize.Weight, part int, t *target, to *quantize.Found) (total sums, err error) {
	if err := s.shifts(ctx, t); err != nil {
		return total, err
	}
	width := s.c.panelWidth(w.K)
	n := int64(t.n)
	all := make([]sums, (n-1)/width+1)
	err = work.Each(ctx, s.c.workers, len(all), func(ctx context.Context, p *panel, i int) error {
		first := int64(i) * width
		p.solver, p.weight, p.target = s, w, t
		p.first, p.n, p.at = first, min(width, n-first), int64(part)*n+first
		var err error
		all[i], err = p.run(ctx, to)
		return err
	})
	for _, e := range all {
		total.add(e)
	}
	return total, err
}

// perElement is how many bytes the buffers of a panel have for an element.
const perElement = 60

// panelWidth is how many columns a worker takes at a time.
func (c *calibration) panelWidth(k int64) int64 {
	return min(max(c.Memory/4/int64(c.workers)/(k*perElement), 16), 128)
}

// panel has the buffers of one worker, and the columns that it is at.
type panel struct {
	*solver
	weight   *quantize.Weight
	target   *target
	first, n int64 // of the target
	at       int64 // column of the weight

	columns  secondorder.Columns
	kept     secondorder.Columns // codes of gptq, beside those of best
	rounder  secondorder.Rounder
	search   secondorder.Search
	clip     secondorder.Clip
	multiply linalg.Multiplier
	blocks   blocks

	raw     []byte
	weights []float32 // as they are stored
	by      []float32 // how far decoded codes are from them
	outputs []float32 // on the rows that are held out
	base    []float32 // the output of the weights, minus the wanted output
}

func (p *panel) run(ctx context.Context, to *quantize.Found) (e sums, err error) {
	if err := work.Stopped(ctx); err != nil {
		return e, err
	}
	w, k, n := p.weight, int(p.weight.K), int(p.n)
	f := w.SecondOrder(w.Codec)
	c := &p.columns
	c.Resize(k, n, f)
	codes := p.coderOf(f)
	if err := w.ReadColumns(&p.raw, c.Weights, p.at, p.n); err != nil {
		return e, err
	}
	if !finite(c.Weights) {
		return sums{broken: true}, nil
	}
	copy(buffer.Grow(&p.weights, int64(k*n)), c.Weights)
	if err := codes.mse(ctx); err != nil {
		return e, err
	}
	if p.known {
		e.calibrated, e.signal = true, p.wantedOutputs()
		e.mse = p.measure(codes)
		switch {
		case p.c.Algorithm == spec.Best:
			if err := p.best(ctx, codes, f, &e); err != nil {
				return e, err
			}
			return e, codes.write(to)
		case p.c.Algorithm == spec.AWQ:
			p.clip.Find(c, p.m.h, f)
		case p.target.g != nil:
			p.aimed(codes, f, &e)
			return e, codes.write(to)
		default:
			p.factor.Round(&p.rounder, c, f)
		}
		codes.takeCodes()
		e.found = p.measure(codes)
	}
	return e, codes.write(to)
}

// aimed finds the codes of gptq for the wanted outputs, and keeps those for the outputs of the weights if these are
// better on the held-out rows.
func (p *panel) aimed(codes coder, f secondorder.Format, e *sums) {
	p.factor.Round(&p.rounder, &p.columns, f)
	codes.takeCodes()
	plain := p.measure(codes)
	codes.keep()
	e.found = plain
	p.shift()
	for range 2 { // the whole way to the wanted outputs, and half of it
		p.factor.Round(&p.rounder, &p.columns, f)
		codes.takeCodes()
		if found := p.measure(codes); found < e.found {
			codes.keep()
			e.found = found
		}
		for i, v := range p.weights {
			p.columns.Weights[i] = (p.columns.Weights[i] + v) / 2
		}
	}
	codes.restore()
}

// best finds the codes of best, and keeps those of gptq if they are better on the held-out rows.
func (p *panel) best(ctx context.Context, codes coder, f secondorder.Format, e *sums) error {
	c := &p.columns
	p.factor.Round(&p.rounder, c, f)
	codes.takeCodes()
	gptq := p.measure(codes)
	codes.keep()
	p.shift()
	if err := codes.weighted(ctx, secondorder.Importance(p.h.Diagonal)); err != nil {
		return err
	}
	p.search.Refine(p.factor, c, p.h, f)
	codes.takeCodes()
	e.found, e.columns = p.measure(codes), p.n
	if !(e.found <= gptq) {
		codes.restore()
		e.found, e.simpler = gptq, p.n
	}
	return nil
}

// heldRows is the matrix of the rows that are held out.
func (p *panel) heldRows() linalg.Matrix { return linalg.Of(p.m.held, len(p.m.held)/p.m.k, p.m.k) }

// wantedOutputs sets base, on the held-out rows. It returns the sum of squares of the wanted outputs.
func (p *panel) wantedOutputs() (signal float64) {
	held, n := p.heldRows(), int(p.n)
	wanted := buffer.Grow(&p.outputs, int64(held.Rows*n))
	clear(wanted)
	p.multiply.Add(linalg.Of(wanted, held.Rows, n), 1, held, linalg.Of(p.weights, p.m.k, n))
	base := buffer.Grow(&p.base, int64(held.Rows*n))
	clear(base)
	if p.target.g != nil {
		for r := range held.Rows {
			for j, v := range p.target.held[r*p.target.n+int(p.first):][:n] {
				base[r*n+j] = -v
				wanted[r*n+j] += v
			}
		}
	}
	return squares(wanted)
}

func squares(x []float32) (sum float64) {
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

// measure is the squared error of the outputs of codes, on the rows that are held out.
func (p *panel) measure(codes coder) float64 {
	held, k, n := p.heldRows(), p.m.k, int(p.n)
	by := buffer.Grow(&p.by, int64(k*n))
	codes.decode(by)
	for i, v := range p.weights {
		by[i] -= v
	}
	outputs := buffer.Grow(&p.outputs, int64(held.Rows*n))
	copy(outputs, p.base)
	p.multiply.Add(linalg.Of(outputs, held.Rows, n), 1, held, linalg.Of(by, k, n))
	return squares(outputs)
}
