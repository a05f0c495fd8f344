package convert

import (
	"context"
	"slices"

	"onnxquant/internal/balance"
	"onnxquant/internal/layerfit"
)

// balanced returns the plan of the model with factors for the channels of values, in algorithm awq, and
// how many layers read these. Temporary files are in the folder of the output.
func (p *Plan) balanced(ctx context.Context, path string) (made *Plan, n int, err error) {
	if p.opts.Calibration == nil || !p.calibration().Clip {
		return p, 0, nil
	}
	float, err := p.inFloat()
	if err != nil {
		return nil, 0, err
	}
	groups, which, layers := float.balance()
	o := float.calibration()
	unlock, err := float.begins(ctx, path, &o)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	remove, err := float.writesInterim(&o, which)
	if err != nil {
		return nil, 0, err
	}
	defer remove()
	found, err := layerfit.Channels(ctx, layers, p.opts.Calibration, o)
	if err != nil {
		return nil, 0, err
	}
	factors := make([][]float32, len(groups))
	first := 0 // layer of a group
	for i, g := range groups {
		if factors[i] = found[first]; factors[i] != nil {
			n += len(g.Weights)
		}
		first += len(g.Weights)
	}
	if n == 0 {
		return p, 0, nil
	}
	scaled, err := balance.Scale(p.input, groups, factors)
	if err != nil {
		return nil, 0, err
	}
	if made, err = planFrom(scaled, p.opts, nil); err != nil {
		return nil, 0, err
	}
	made.TileLimit = p.TileLimit
	return made, n, nil
}

// inFloat returns the plan without half: layers are calibrated in float32 whatever becomes of what is
// not quantized.
func (p *Plan) inFloat() (*Plan, error) {
	if p.Half == nil {
		return p, nil
	}
	opts := p.opts
	opts.Half = nil
	return planFrom(p.input, opts, nil)
}

// balance returns the groups of the model, as it was opened, whose weights are all calibrated, and their
// layers, group by group, as layers does.
func (p *Plan) balance() (groups []balance.Group, which []int, layers []layerfit.Layer) {
	all, calibrated := p.layers()
	at := map[string]int{} // in all, by path of a weight
	for i, w := range all {
		if len(calibrated[i].Products) == 1 {
			at[p.Weights[w].Value.Path] = i
		}
	}
	for _, g := range balance.Find(p.input) {
		if slices.ContainsFunc(g.Weights, func(w balance.Part) bool { _, ok := at[w.Value.Path]; return !ok }) {
			continue
		}
		groups = append(groups, g)
		for _, w := range g.Weights {
			i := at[w.Value.Path]
			which, layers = append(which, all[i]), append(layers, calibrated[i])
		}
	}
	return groups, which, layers
}
