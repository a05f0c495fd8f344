package layerfit

import (
	"context"
	"fmt"
	"math"

	"onnxquant/internal/quantize"
)

// group finds the codes of a group of layers, by its number. sample is how much a sample counts in its progress.
// done, if not nil, is called when the codes of layers with the same input are found.
func (c *calibration) group(ctx context.Context, number int, group []*inputs, sample float64, done func(*fit) error) error {
	fits := c.begin(group)
	sample /= float64(c.runsOf(group))
	for {
		spans, of := c.spans(fits)
		if len(spans) == 0 {
			return nil
		}
		sums, err := c.observe(ctx, number, spans, func() { c.pace.addTime(&c.pace.running, sample) })
		if err != nil {
			return err
		}
		for i, f := range of {
			if err := c.solve(ctx, f, sums[i]); err != nil {
				return err
			}
			sums[i] = nil
			if done != nil && f.next == f.parts {
				if err := done(f); err != nil {
					return err
				}
			}
		}
	}
}

// solve finds the codes of the layers that share inputs, one part of their columns after another. parts are the next
// ones.
func (c *calibration) solve(ctx context.Context, f *fit, parts []*moments) error {
	for _, m := range parts {
		if err := c.solvePart(ctx, f, m); err != nil {
			return err
		}
		f.next++
	}
	if f.next < f.parts {
		return nil
	}
	for j, i := range f.layers {
		if f.few {
			c.each[i].Few = 1
		}
		c.Experts[i] = f.experts[j]
		why := f.why
		if c.routed(f.inputs) != nil {
			why = f.experts[j].why()
		}
		if err := c.keepBetter(ctx, i, f.found[j], f.sums[j], why); err != nil {
			return err
		}
		if err := c.correct(ctx, i, j, parts); err != nil {
			return err
		}
		c.Error.add(c.each[i])
	}
	return nil
}

// solvePart finds the codes of the next part.
func (c *calibration) solvePart(ctx context.Context, f *fit, m *moments) error {
	if left, err := c.leave(ctx, f, f.next, m); left || err != nil {
		return err
	}
	f.few = f.few || m.rows < int64(m.k) && c.routed(f.inputs) == nil
	s, err := newSolver(ctx, c, m)
	if err != nil {
		return err
	}
	if f.why == "" {
		f.why = s.why
	}
	for j, i := range f.layers {
		e, err := s.panels(ctx, c.layers[i].Weight, f.next, m.targets[j], f.found[j])
		if err != nil {
			return err
		}
		if err := c.keepBetterExpert(ctx, f, j, f.next, m, s.why, &e); err != nil {
			return err
		}
		f.sums[j].add(e)
	}
	m.h = nil
	for _, t := range m.targets {
		t.g = nil
	}
	return nil
}

// keepBetter keeps the codes found for a layer, or the codes of mse if their error is smaller. why
// explains why no codes were found.
func (c *calibration) keepBetter(ctx context.Context, layer int, found *quantize.Found, e sums, why string) error {
	defer c.pace.addTime(&c.pace.fitting, c.products(layer, c.passes))
	of := &c.each[layer]
	switch {
	case e.broken:
		return nil
	case !e.calibrated:
		c.Notes[layer] = why
	case e.comparable():
		of.Layers, of.MSE, of.Found = 1, e.mse/e.signal, min(e.found, e.mse)/e.signal
	}
	of.Columns, of.GPTQ = e.columns, e.simpler
	c.Found[layer] = found
	if e.signal == 0 || e.found <= e.mse {
		return nil
	}
	of.Lost = 1
	c.Notes[layer] = fmt.Sprintf("%s has an error of %.3g of the output on held-out rows, mse %.3g", c.Algorithm, math.Sqrt(e.found/e.signal), math.Sqrt(e.mse/e.signal))
	return c.mse(ctx, c.layers[layer], found)
}
