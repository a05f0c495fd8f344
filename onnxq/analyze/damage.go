package analyze

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Damage measures what quantizing one weight alone does to the outputs of a model: a number
// that adds up over weights. Package sensitivity implements it.
type Damage interface {
	// Expect is told how many measurements there will be.
	Expect(n int)

	// Of returns the damage of each of some weights, quantized as opts say; NaN if it cannot
	// be measured.
	Of(ctx context.Context, m *onnxq.Model, opts onnxq.Options, weights []string) ([]float64, error)

	// Together returns the damage of all weights quantized at once, measured on held-out data if there
	// are more.
	Together(ctx context.Context, m *onnxq.Model, opts onnxq.Options) (float64, error)
}

// measureDamages measures the effect of the choices on the model's outputs, one candidate at a time.
func (a *analyzer) measureDamages(ctx context.Context) error {
	all := make([][]*Choice, len(a.Candidates)) // that are to be measured, by candidate
	names, total := make([][]string, len(a.Candidates)), 0
	for i := range a.Weights {
		w := &a.Weights[i]
		for j := range w.Choices {
			choice := &w.Choices[j]
			if choice.Candidate.Format == spec.Float {
				choice.Damage = new(float64)
				continue
			}
			if len(a.sparse) > 0 && !slices.Contains(a.sparse, choice.Candidate) {
				unknown := math.NaN()
				choice.Damage = &unknown
				continue
			}
			at := slices.Index(a.Candidates, choice.Candidate)
			all[at], names[at] = append(all[at], choice), append(names[at], w.Name)
			total++
		}
	}
	if total > 0 {
		a.damage.Expect(total)
	}
	for i, c := range a.Candidates {
		if len(all[i]) == 0 {
			continue
		}
		opts, err := a.optionsFor(c)
		if err != nil {
			return err
		}
		opts.FloatType = "" // the model runs in float32
		found, err := a.damage.Of(ctx, a.model, opts, names[i])
		if err != nil {
			return fmt.Errorf("candidate %s: %w", c, err)
		}
		for k, choice := range all[i] {
			choice.Damage = &found[k]
		}
	}
	return nil
}

// estimate sets the damages that were not measured. Between two measured choices of the weight the damage is a power of the
// error, beyond them it grows as the squared error. For a weight without any it is the median ratio of damage to squared error.
func (a *analyzer) estimate() {
	var worth []float64
	var missing []*Choice
	for _, w := range a.Weights {
		var measured []*Choice
		for i := range w.Choices {
			if c := &w.Choices[i]; c.Error > 0 && finite(*c.Damage) == *c.Damage {
				measured = append(measured, c)
				worth = append(worth, *c.Damage/(c.Error*c.Error))
			}
		}
		slices.SortStableFunc(measured, func(x, y *Choice) int { return cmp.Compare(x.Error, y.Error) })
		for i := range w.Choices {
			c := &w.Choices[i]
			switch {
			case !math.IsNaN(*c.Damage) && !math.IsInf(*c.Damage, 0):
			case len(measured) == 0:
				missing = append(missing, c)
			default:
				*c.Damage, c.Estimated = between(measured, c.Error), true
			}
		}
	}
	median := 1.0
	if len(worth) > 0 {
		slices.Sort(worth)
		median = worth[len(worth)/2]
	}
	for _, c := range missing {
		*c.Damage, c.Estimated = median*c.Error*c.Error, true
	}
}

// between estimates the damage of an error by measured choices, which are sorted by their errors.
func between(measured []*Choice, e float64) float64 {
	at, same := slices.BinarySearchFunc(measured, e, func(c *Choice, e float64) int { return cmp.Compare(c.Error, e) })
	if at > 0 && at < len(measured) && !same {
		x, y := measured[at-1], measured[at]
		if *x.Damage > 0 && *y.Damage > 0 {
			share := math.Log(e/x.Error) / math.Log(y.Error/x.Error)
			return *x.Damage * math.Pow(*y.Damage / *x.Damage, share)
		}
	}
	near := slices.MinFunc(measured, func(x, y *Choice) int { return cmp.Compare(distance(x.Error, e), distance(y.Error, e)) })
	return *near.Damage * (e / near.Error) * (e / near.Error)
}

// distance compares two errors, as a ratio.
func distance(x, y float64) float64 { return math.Abs(math.Log(max(x, 1e-12) / max(y, 1e-12))) }
