package report

import (
	"context"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/inspect"
)

// Analysis reports what package analyze recommends for the model at in, which m is.
func Analysis(ctx context.Context, in string, m *onnxq.Model, a *analyze.Analysis, opts Options) (*Report, error) {
	c := newCollector(ctx, opts)
	found := inspect.Model(m, onnxq.Options{})
	var err error
	if c.report.In, err = c.file(in, found); err != nil {
		return nil, err
	}
	for _, w := range a.Weights {
		for _, choice := range w.Choices {
			if choice.Candidate != w.Recommended {
				continue
			}
			stats := choice.Stats
			c.report.Weights = append(c.report.Weights, Weight{
				Name: w.Name, Node: w.Node, DType: w.DType, Shape: w.Shape, Format: choice.Candidate.String(),
				FloatBytes: w.Bytes, Bytes: choice.Bytes, Error: choice.Error, Cost: choice.Error * float64(choice.Bytes),
				SQNR: min(stats.SQNR, exact), MaxError: stats.MaxError, Choices: pointsOf(w.Choices),
			})
		}
	}
	sortWeights(c.report.Weights)
	c.frontier(a)
	c.report.Sizes.Recommended = &SizePoint{Bytes: a.OutBytes, Error: a.Error}
	c.report.Fix = &Suggestion{Weights: len(a.Weights), Precision: a.Precision, After: a.Error, Choices: []Suggested{}}
	c.kept(found.Plan)
	return c.report, nil
}
