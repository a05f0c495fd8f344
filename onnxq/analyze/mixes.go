package analyze

import (
	"context"

	"onnxquant/onnxq"
	"onnxquant/rules"
)

// Mixes has what Model measures, for many mixes of one model. It needs the model to be open, and is not for
// concurrent use.
type Mixes struct{ a *analyzer }

// Mix is a choice for each weight.
type Mix struct {
	Precision *rules.Precision
	OutBytes  int64   // exact, as Analysis.OutBytes
	Noise     float64 // sum of the damages of the weights or, without Options.Damage, of their squared errors
}

// MeasureMixes measures the candidates on the weights of a model, once for all mixes. MaxError and MaxSize do not count.
func MeasureMixes(ctx context.Context, m *onnxq.Model, opts Options) (*Mixes, error) {
	opts.MaxError, opts.MaxSize = 0, 0
	a, err := measured(ctx, m, opts)
	if err != nil {
		return nil, err
	}
	return &Mixes{a}, nil
}

// Weights has the error, and the damage, of each candidate for each weight. The caller must not change it.
func (m *Mixes) Weights() []Weight { return m.a.Weights }

// Smallest finds the smallest mix with at most this noise.
func (m *Mixes) Smallest(noise float64) (*Mix, error) {
	bytes, weights := m.a.classes((*Choice).noise)
	s, _ := m.a.solve(bytes, noise*(1-1e-9)) // always feasible: float has no noise
	if err := m.a.applyPick(s.Pick); err != nil {
		return nil, err
	}
	found := &Mix{Precision: m.a.Precision, OutBytes: m.a.OutBytes}
	for i, choices := range weights {
		found.Noise += choices[s.Pick[i]].Cost
	}
	return found, nil
}
