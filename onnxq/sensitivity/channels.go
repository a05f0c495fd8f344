package sensitivity

import (
	"context"

	"onnxquant/spec"
)

// channels gives weights a scale for each channel where the target takes that and has one for each weight by default, if the
// held-out samples lose less then.
func (s *static) channels(ctx context.Context) error {
	o := s.fit.Options
	if s.held == nil || o.Block != 0 || o.ScalePerChannel() || o.Bits == 4 || o.Format == spec.Int4 {
		return nil
	}
	one, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	o.Block = spec.PerChannel
	each, err := s.held.lossOfOutput(ctx, s.model, o)
	if err == nil && each.Damage < one.Damage*(1-leastGain) {
		s.fit.Options, s.fit.PerTensor, s.fit.PerChannel, s.loss = o, &one, &each, &each
	}
	return err
}
