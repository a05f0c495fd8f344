package sensitivity

import (
	"cmp"
	"context"
	"slices"

	"onnxquant/internal/run/execute"
	"onnxquant/onnxq"
)

// maxChain is the largest number of runs of a chain.
const maxChain = 64

// link makes a chain of the samples of a model with states: each run reads the states that the run before has made, as
// in use. Errors of codes then add up over the runs.
func (s *Sensitivity) link(ctx context.Context) (err error) {
	if len(s.states) == 0 {
		return nil
	}
	all := samples{s.weighed.list, true}
	if s.heldOut() {
		all.list = slices.Concat(all.list, s.others.list)
	}
	all = all.first(maxChain)
	s.chain.carried = true
	return s.each(ctx, s.session, all, func(_, want []*execute.Tensor) error {
		inputs, _, err := all.list[len(s.chain.list)].load()
		if err != nil {
			return err
		}
		one, err := s.store.add(inputs, want)
		s.chain.list = append(s.chain.list, one)
		return err
	})
}

// heldOut reports whether some samples do not weigh.
func (s *Sensitivity) heldOut() bool {
	return len(s.others.list) > 0 && s.others.list[0] != s.weighed.list[0]
}

// carry replaces the states among inputs by those of outputs.
func (s *Sensitivity) carry(inputs, outputs []*execute.Tensor) {
	for _, pair := range s.states {
		i := slices.IndexFunc(inputs, func(t *execute.Tensor) bool { return t != nil && t.Name == pair.Input })
		k := slices.IndexFunc(s.outputs, func(o output) bool { return o.name == pair.Output })
		if i < 0 || k < 0 || outputs[k].DType != inputs[i].DType || !slices.Equal(outputs[k].Dims, inputs[i].Dims) {
			continue
		}
		inputs[i] = &execute.Tensor{Name: pair.Input, DType: outputs[k].DType, Dims: outputs[k].Dims, Data: outputs[k].Data}
	}
}

// worse takes the larger loss of both, figure by figure.
func worse(a, b onnxq.OutputLoss) onnxq.OutputLoss {
	larger := func(x, y *float64, sign float64) *float64 {
		if x == nil || y != nil && sign**y > sign**x {
			return y
		}
		return x
	}
	return onnxq.OutputLoss{Damage: max(a.Damage, b.Damage), KL: larger(a.KL, b.KL, 1), SQNR: larger(a.SQNR, b.SQNR, -1), Drop: larger(a.Drop, b.Drop, 1), Poor: cmp.Or(a.Poor, b.Poor)}
}
