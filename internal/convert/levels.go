package convert

import (
	"context"

	"onnxquant/internal/discover"
	"onnxquant/spec"
)

// FindLevels gets a finished output, and the paths of weights by the names of their codes. These have the accuracy_level
// AccuracyInt8 by default. It returns weights that need another level. The output is then written again.
type FindLevels func(ctx context.Context, path string, weights map[string]string) (map[string]spec.AccuracyLevel, error)

// reasonLevel is why a weight has another accuracy_level than the default.
const reasonLevel = "with 4, the outputs lose too much"

// try returns what tries the finished output; nil for nothing.
func (p *Plan) try() func(ctx context.Context, path string) error {
	if p.opts.FindLevels == nil || p.found.levels {
		return p.opts.Try
	}
	return func(ctx context.Context, path string) error {
		weights := map[string]string{}
		for _, w := range p.Weights {
			if c := w.Choice; c.Style == spec.NBits && c.NBits.Product && !c.NBits.Bnb4 && c.AccuracyLevel == spec.AccuracyDefault {
				weights[w.Tensors.Codes.GetName()] = w.Value.Path
			}
		}
		levels, err := p.opts.FindLevels(ctx, path, weights)
		if err != nil {
			return err
		}
		if len(levels) > 0 {
			found := findings{weights: discover.Exceptions{}, levels: true}
			for path, level := range levels {
				found.weights[path] = discover.Exception{Level: discover.Level{Level: level, Why: reasonLevel}}
			}
			return found
		}
		if p.opts.Try == nil {
			return nil
		}
		return p.opts.Try(ctx, path)
	}
}
