package layerfit

import (
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
)

// FallbackExperts lists the experts of a layer, or its matrices, that have the codes of mse.
type FallbackExperts struct {
	Part        string // what they are called: "expert" or "matrix"
	Few         []int  // too few rows reached them
	NotHeldOut  []int  // enough rows reached them, but none of these is held out
	Worse       []int  // the codes found were worse on the held-out rows
	Unsolved    []int  // no codes follow from their rows
	UnsolvedWhy string // of the first of these
}

// None reports whether all experts have the codes found.
func (e FallbackExperts) None() bool {
	return len(e.Few)+len(e.NotHeldOut)+len(e.Worse)+len(e.Unsolved) == 0
}

// why says why none of the experts has codes by data.
func (e FallbackExperts) why() string {
	var all []string
	which := "each of its " + english.PluralWord(2, e.Part, "")
	if len(e.Few) > 0 {
		all = append(all, fmt.Sprintf("fewer than %d rows reach %s", leastRows, which))
	}
	if len(e.NotHeldOut) > 0 {
		all = append(all, "no row is held out of "+which)
	}
	if len(e.Unsolved) > 0 {
		all = append(all, e.UnsolvedWhy)
	}
	if len(all) > 1 {
		return strings.ReplaceAll(strings.Join(all, "; "), "each of", "some of")
	}
	return strings.Join(all, "; ")
}

// leastRows is how many rows an expert needs, besides held-out ones, so that codes are looked for.
const leastRows = 32

// leave gives an expert the codes of mse if too few rows reached it, or none is held out. It reports whether it did.
func (c *calibration) leave(ctx context.Context, f *fit, expert int, m *moments) (bool, error) {
	few := m.rows < leastRows
	unsolved := m.unknown != "" || m.rows == 0 && m.bad > 0
	if c.routed(f.inputs) == nil || unsolved || !few && len(m.held) > 0 {
		return false, nil
	}
	for j := range f.layers {
		if of := &f.experts[j]; few {
			of.Few = append(of.Few, expert)
		} else {
			of.NotHeldOut = append(of.NotHeldOut, expert)
		}
		if err := c.mseOf(ctx, f, j, expert, m); err != nil {
			return true, err
		}
	}
	return true, nil
}

// keepBetterExpert keeps the codes found for an expert, or those of mse if their error is smaller. unsolved says why
// none were found, or is "".
func (c *calibration) keepBetterExpert(ctx context.Context, f *fit, j, expert int, m *moments, unsolved string, e *sums) error {
	of := &f.experts[j]
	switch {
	case c.routed(f.inputs) == nil:
		return nil
	case unsolved != "":
		if of.Unsolved = append(of.Unsolved, expert); of.UnsolvedWhy == "" {
			of.UnsolvedWhy = unsolved
		}
		return nil
	case !e.calibrated || e.found <= e.mse:
		return nil
	}
	of.Worse = append(of.Worse, expert)
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
