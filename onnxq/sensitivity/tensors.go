package sensitivity

import (
	"context"

	"onnxquant/spec"
)

// leastPerTensor is the share of the damage that one scale for a weight must save to replace a scale per channel: few samples
// decide.
const leastPerTensor = 0.1

// tensors gives each weight one scale in place of one for each channel, if the held-out samples lose less then. On processors where
// sums of products overflow, most codes are smaller with one scale, and fewer sums overflow.
func (s *static) tensors(ctx context.Context) error {
	o := s.fit.Options
	if s.held == nil || o.Block != 0 || !o.ScalePerChannel() || o.Bits == 4 || o.Format != "" || !runsHere(o) || s.held.engine.IsGo() {
		return nil
	}
	each, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	o.Block, o.ReduceRange = spec.PerTensor, s.fit.Options.ReduceRange && s.fit.EightBits == nil // 7 bits are for sums of a scale per channel
	one, err := s.held.lossOfOutput(ctx, s.model, o)
	if err == nil && one.Damage < each.Damage*(1-leastPerTensor) {
		s.fit.Options, s.fit.PerTensor, s.fit.PerChannel, s.loss = o, &one, &each, &one
		s.fit.EightBits, s.fit.SevenBits = nil, nil
	}
	return err
}
