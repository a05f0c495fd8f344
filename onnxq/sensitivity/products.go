package sensitivity

import "context"

// products has products of matrices make floats, which ONNX Runtime computes from codes as fast, if the held-out samples lose
// less then, and the output is no larger.
func (s *static) products(ctx context.Context) error {
	o := s.fit.Options
	if s.held == nil || len(o.Ops) > 0 || o.CoarseActivations || !runsHere(o) {
		return nil
	}
	o.FloatProducts = true
	if err := s.decodeRest(&o); err != nil {
		return err
	}
	all, err := s.model.Plan(s.fit.Options)
	if err != nil {
		return err
	}
	some, err := s.model.Plan(o)
	if err != nil || len(some.Stages().Static().Tensors) == len(all.Stages().Static().Tensors) {
		return err
	}
	const name = "out.onnx"
	most, err := all.OutputSize(name)
	if err != nil {
		return err
	}
	if size, err := some.OutputSize(name); err != nil || size > most {
		return err
	}
	without, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	loss, err := s.held.lossOfOutput(ctx, s.model, o)
	if err == nil && loss.Damage < without.Damage*(1-leastGain) {
		s.fit.Options, s.fit.AllOperators, s.fit.FloatProducts, s.loss = o, &without, &loss, &loss
	}
	return err
}
