package sensitivity

import (
	"context"
	"strings"

	"onnxquant/internal/target"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// narrow gives weights codes of 7 bits where sums of products overflow, if the outputs of held-out samples lose less then, and
// exact sums of 8 bits lose less, too: otherwise the gain is chance. If nothing differs, it gives them 7 bits: few samples show
// overflows, but one that does can have another result. Pure Go has exact sums: there, 7 bits are taken if they lose little.
func (s *static) narrow(ctx context.Context) error {
	return s.tryNarrow(ctx, func(eight, seven onnxq.OutputLoss) (bool, error) {
		switch {
		case s.held.engine.IsGo():
			if s.fit.exact = s.limits.little(eight, seven); !s.fit.exact {
				s.fit.Warnings = append(s.fit.Warnings, unseenOverflow)
			}
			return s.fit.exact, nil
		case seven.Damage >= eight.Damage:
			return seven.Damage == eight.Damage, nil
		}
		exact, err := s.held.plain().lossOfOutput(ctx, s.model, s.fit.Options)
		return exact.Damage < eight.Damage*(1-leastOverflow), err
	})
}

// narrowUnseen gives weights 7 bits, too, if the outputs lose next to nothing with either width, at most unseenDamage of the limit: the
// difference is chance then, and other inputs may overflow.
func (s *static) narrowUnseen(ctx context.Context) error {
	if s.held == nil || s.held.engine.IsGo() || s.fit.wider || s.limits.given() {
		return nil
	}
	return s.tryNarrow(ctx, func(eight, seven onnxq.OutputLoss) (bool, error) {
		return unseen(eight, seven, s.held.usualLimit()), nil
	})
}

// unseen reports whether both widths lose next to nothing.
func unseen(eight, seven onnxq.OutputLoss, limit float64) bool {
	return max(eight.Damage, seven.Damage) <= unseenDamage*limit
}

// tryNarrow measures weights of 7 bits where sums of products overflow, and takes them if a function accepts their loss.
func (s *static) tryNarrow(ctx context.Context, accept func(eight, seven onnxq.OutputLoss) (bool, error)) error {
	o := s.fit.Options
	if !target.SumsOverflow || s.held == nil || o.ReduceRange || o.Format != "" || !runsHere(o) {
		return nil
	}
	eight, err := s.lossOfAll(ctx)
	if err != nil {
		return err
	}
	o.ReduceRange, o.FullTables = true, true
	seven, err := s.held.lossOfOutput(ctx, s.model, o)
	if err != nil {
		return err
	}
	if ok, err := accept(eight, seven); err != nil || !ok {
		return err
	}
	s.fit.Options, s.fit.EightBits, s.fit.SevenBits, s.loss = o, &eight, &seven, &seven
	return nil
}

// unseenDamage is the part of the default limit that both widths may lose where overflows are feared that no sample shows.
const unseenDamage = 0.1

// unseenOverflow warns of 8 bits where pure Go measured, because 7 bits lose too much.
const unseenOverflow = "weights keep 8 bits, because 7 lose more: ONNX Runtime's sums of products overflow on this processor, which has no VNNI, and the losses, of exact sums, do not show that; --reduce-range avoids it"

// little reports whether 7 bits lose little by exact sums, which show no overflows. The user's limits hold, or without limits the
// damage at most doubles or is small.
func (l Limits) little(eight, seven onnxq.OutputLoss) bool {
	const most = 2
	if l.given() {
		return l.hold(seven)
	}
	return seven.Damage <= max(most*eight.Damage, DefaultNumbersLimit)
}

// leastOverflow is the share of the damage that overflows must have.
const leastOverflow = 0.05

// plain measures models that run without optimizations: pairs around operators then compute in float.
func (s *Sensitivity) plain() *Sensitivity {
	p := *s
	p.engine = s.engine.Plain()
	return &p
}

// runsHere reports whether the converted model computes with codes of 8 bits on the processor of this machine.
func runsHere(o onnxq.Options) bool {
	return (o.Target == "" || o.Target == spec.Portable || o.Target == spec.ORT) && !strings.HasSuffix(string(o.ActivationType), "16")
}
