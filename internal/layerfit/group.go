package layerfit

import (
	"context"
	"fmt"
	"math"

	"onnxquant/internal/quantize"
)

// group finds the codes of a group of layers, by its number. sample is how much a sample counts in its progress.
func (c *calibration) group(ctx context.Context, number int, group []*inputs, sample float64) error {
	sums, err := c.observe(ctx, number, group, func() { c.pace.addTime(&c.pace.running, sample) })
	if err != nil {
		return err
	}
	for i, in := range group {
		if err := c.solve(ctx, in, sums[i]); err != nil {
			return err
		}
		sums[i] = nil
	}
	return nil
}

// solve finds the codes of the layers that share inputs, one part of their columns after another.
func (c *calibration) solve(ctx context.Context, in *inputs, parts []*moments) error {
	found := make([]*quantize.Found, len(in.layers))
	all := make([]sums, len(in.layers))
	for j, i := range in.layers {
		found[j] = c.store.add(c.layers[i].Weight)
	}
	why, few := "", false
	for part, m := range parts {
		few = few || m.rows < int64(m.k)
		s, err := newSolver(ctx, c, m)
		if err != nil {
			return err
		}
		if why == "" {
			why = s.why
		}
		for j, i := range in.layers {
			e, err := s.panels(ctx, c.layers[i].Weight, part, m.targets[j], found[j])
			if err != nil {
				return err
			}
			all[j].add(e)
		}
		m.h = nil
		for _, t := range m.targets {
			t.g = nil
		}
	}
	for j, i := range in.layers {
		if few {
			c.each[i].Few = 1
		}
		if err := c.keepBetter(ctx, i, found[j], all[j], why); err != nil {
			return err
		}
		if err := c.correct(ctx, i, j, parts); err != nil {
			return err
		}
		c.Error.add(c.each[i])
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
