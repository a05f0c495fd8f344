package convert

import (
	"context"
	"slices"

	"onnxquant/internal/balance"
	"onnxquant/internal/layerfit"
	"onnxquant/spec"
)

// balanced is for algorithm awq. It returns the plan of a model whose channels have been multiplied
// by factors, and the number of layers that read such channels. Temporary files are in the folder
// of the output.
func (p *Plan) balanced(ctx context.Context, path string) (made *Plan, n int, err error) {
	if p.opts.Calibration == nil || p.calibration().Algorithm != spec.AWQ {
		return p, 0, nil
	}
	float, err := p.inFloat()
	if err != nil {
		return nil, 0, err
	}
	groups, layers := float.balance()
	o := float.calibration()
	unlock, err := float.lockFiles(ctx, path, "", &o)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	remove, err := float.enableInterim(&o, layers)
	if err != nil {
		return nil, 0, err
	}
	defer remove()
	found, err := layerfit.Channels(ctx, fitted(layers), p.opts.Calibration, o)
	if err != nil {
		return nil, 0, err
	}
	factors := make([][]float32, len(groups))
	first := 0 // first layer of a group
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
	made, err = p.of(scaled).plan()
	return made, n, err
}

// inFloat returns the plan without conversion to half. Layers are calibrated in float32, whatever
// type the rest of the model gets.
func (p *Plan) inFloat() (*Plan, error) {
	if p.Half == nil {
		return p, nil
	}
	l := p.of(p.input)
	l.opts.Half = nil
	return l.plan()
}

// balance returns the groups of the model, as opened, whose weights are all calibrated, and their
// layers, group by group.
func (p *Plan) balance() (groups []balance.Group, layers []layer) {
	calibrated := map[string]layer{} // by path of the weight
	for _, l := range p.layers() {
		if len(l.Products) == 1 && l.Parts() == 1 {
			calibrated[l.value.Path] = l
		}
	}
	for _, g := range balance.Find(p.input) {
		if slices.ContainsFunc(g.Weights, func(w balance.Part) bool { _, ok := calibrated[w.Value.Path]; return !ok }) {
			continue
		}
		groups = append(groups, g)
		for _, w := range g.Weights {
			layers = append(layers, calibrated[w.Value.Path])
		}
	}
	return groups, layers
}
