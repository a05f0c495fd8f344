package sensitivity

import (
	"context"

	"onnxquant/internal/target"
	"onnxquant/onnxq"
)

// setting is a form of weights of operators on codes, and what the held-out samples lose with it.
type setting struct {
	options onnxq.Options
	loss    onnxq.OutputLoss
}

// settings gives weights of operators on codes 7 bits, or one scale each, where sums of products overflow, if the held-out samples
// lose least then. given are the options of the user.
func (d *dynamic) settings(ctx context.Context, given onnxq.Options) error {
	f := d.fit
	if d.held == nil || d.apart == 0 {
		return nil
	}
	all, best, err := d.weighSettings(ctx, d.model, given, f.Options)
	if err != nil || best == 0 {
		return err
	}
	f.Options, f.EightBits, f.SevenBits, f.PerTensor = all[best].options, &all[0].loss, &all[1].loss, &all[2].loss
	return nil
}

// weighSettings measures o, and where sums of products overflow 7 bits and one scale for each weight of a product. best is the
// number of the one with the least damage.
func (s *fitting) weighSettings(ctx context.Context, m *onnxq.Model, given, o onnxq.Options) (all []setting, best int, err error) {
	tried := []onnxq.Options{o}
	if target.SumsOverflow && !s.held.engine.IsGo() && given.Format == "" && !given.ReduceRange && given.Block == 0 {
		narrow, one := o, o
		narrow.ReduceRange, one.Block = true, 0
		tried = append(tried, narrow, one)
	}
	for i, t := range tried {
		loss, err := s.held.lossOfOutput(ctx, m, t)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, setting{t, loss})
		if loss.Damage < all[best].loss.Damage*(1-leastOverflow) {
			best = i
		}
	}
	return all, best, nil
}
