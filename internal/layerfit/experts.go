package layerfit

import (
	"context"
	"fmt"
)

// Experts lists the experts of a layer that have the codes of mse.
type Experts struct {
	Few   []int // too few rows reached them
	Worse []int // the codes found were worse on the held-out rows
}

// None reports whether all experts have the codes found.
func (e Experts) None() bool { return len(e.Few)+len(e.Worse) == 0 }

// leastRows is how many rows an expert needs, besides held-out ones, so that codes are looked for.
const leastRows = 32

// tooFew reports whether the moments are of an expert that too few rows reached.
func (c *calibration) tooFew(in *inputs, m *moments) bool {
	return c.routed(in) != nil && (m.rows < leastRows || len(m.held) == 0)
}

// keepBetterExpert keeps the codes found for an expert, or those of mse if their error is smaller.
func (c *calibration) keepBetterExpert(ctx context.Context, f *fit, j, expert int, m *moments, e *sums) error {
	if c.routed(f.inputs) == nil || !e.calibrated || e.found <= e.mse {
		return nil
	}
	f.experts[j].Worse = append(f.experts[j].Worse, expert)
	e.found = e.mse
	return c.mseOf(ctx, f, j, expert, m)
}

// mseOf finds the codes of mse for an expert.
func (c *calibration) mseOf(ctx context.Context, f *fit, j, expert int, m *moments) error {
	s := &solver{c: c, m: &moments{k: m.k}}
	l := c.layers[f.layers[j]]
	_, err := s.panels(ctx, l.Weight, expert, newTarget(m.k, l.columns(), false), f.found[j])
	return err
}

// leaveFew gives an expert that too few rows reached the codes of mse.
func (c *calibration) leaveFew(ctx context.Context, f *fit, expert int, m *moments) error {
	f.why = fmt.Sprintf("fewer than %d rows reach each of its experts", leastRows)
	for j := range f.layers {
		f.experts[j].Few = append(f.experts[j].Few, expert)
		if err := c.mseOf(ctx, f, j, expert, m); err != nil {
			return err
		}
	}
	return nil
}
