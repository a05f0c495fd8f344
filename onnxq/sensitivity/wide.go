package sensitivity

import (
	"context"
	"maps"
	"slices"

	"onnxquant/onnxq"
)

// widths gives activations 16 bits for which codes of 8 bits are too coarse, and those of operators that the target computes
// wrongly with 8 bits, if the target computes with both.
func (s *static) widths(context.Context) error {
	o := &s.fit.Options
	if !o.TakesWide() || o.CoarseActivations {
		return nil
	}
	p, err := s.model.Plan(*o)
	if err != nil {
		return err
	}
	static := p.Stages().Static()
	for _, v := range slices.Concat(static.Coarse, p.Stages().WrongIn8()) {
		if !slices.Contains(o.WideActivations, v.Path) {
			o.WideActivations = append(o.WideActivations, v.Path)
		}
	}
	s.fit.Wide = slices.Clone(o.WideActivations)
	return nil
}

// widener returns what gives groups 16 bits, with ranges that are not clipped. It returns nil if the target does not
// compute with both widths.
func (s *static) widener(groups []*group) func(o *onnxq.Options, parts []int) error {
	if !s.fit.Options.TakesWide() {
		return nil
	}
	return func(o *onnxq.Options, parts []int) error {
		ranges := *o.Ranges
		ranges.Tensors = maps.Clone(ranges.Tensors)
		o.WideActivations = slices.Clip(o.WideActivations)
		for _, i := range parts {
			g := groups[i]
			o.WideActivations = append(o.WideActivations, g.own.Value.Path)
			if v := g.own.Range; v != nil {
				if r, ok := s.whole[v.Path]; ok {
					ranges.Tensors[v.Path] = r
				}
			}
		}
		o.Ranges = &ranges
		return nil
	}
}
