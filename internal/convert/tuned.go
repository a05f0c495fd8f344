package convert

import (
	"context"
	"errors"
	"fmt"

	"onnxquant/internal/layerfit"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/scaletune"
)

// Tuning says how the scales that calibration finds are tuned.
type Tuning struct {
	Steps int // 0: not at all

	// Open opens the float model at path for gradients by some of its stored tensors.
	Open func(ctx context.Context, path string, tensors []string, heldOut func(sample int) bool) (scaletune.Model, error)

	Progress func(done, total int) // called after each step; may be nil
}

// Tuned says what tuning gained.
type Tuned struct {
	scaletune.Result
	Layers int    // that were tuned
	Why    string // why nothing was, or ""
}

// tune tunes the scales of a calibration.
func (p *Plan) tune(ctx context.Context, layers []layer, r *layerfit.Result, o layerfit.Options) (*Tuned, error) {
	t := p.opts.Tune
	if t.Steps == 0 {
		return nil, nil
	}
	if n := p.opts.Calibration.Len(); n < layerfit.HoldsOut {
		return &Tuned{Why: fmt.Sprintf("there are %d samples, of which none can be held out; give %d or more", n, layerfit.HoldsOut)}, nil
	}
	var which []int
	var names []string
	var given []scaletune.Layer
	for i, l := range layers {
		if name := p.storedName(l); name != "" && r.Found[i] != nil {
			which, names, given = append(which, i), append(names, name), append(given, scaletune.Layer{Weight: l.Weight, Found: r.Found[i]})
		}
	}
	if len(given) == 0 {
		return &Tuned{Why: "no weight of the main graph has codes that calibration found"}, nil
	}
	path, err := o.Write(ctx, "tuned", nil, o.Outputs, "")
	if err != nil {
		return nil, err
	}
	m, err := t.Open(ctx, path, names, layerfit.HeldOut)
	if errors.Is(err, scaletune.ErrNoGradients) {
		return &Tuned{Why: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	defer m.Close()
	found, err := scaletune.Run(ctx, m, given, scaletune.Options{Steps: t.Steps, Progress: t.Progress})
	if errors.Is(err, scaletune.ErrNoGradients) {
		return &Tuned{Why: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	for k, i := range which {
		r.Found[i] = found.Found[k]
	}
	return &Tuned{Result: *found, Layers: len(given)}, nil
}

// storedName is the name of a layer's weight among the stored values of the main graph, or "".
func (p *Plan) storedName(l layer) string {
	g := p.opts.Discover.Observed.File.Proto.GetGraph()
	for _, t := range g.GetInitializer() {
		if t == l.value.Tensor {
			return t.GetName()
		}
	}
	for _, n := range g.GetNode() {
		for _, a := range n.GetAttribute() {
			if a.GetType() == onnxpb.AttributeProto_TENSOR && a.GetT() == l.value.Tensor && len(n.Output) == 1 {
				return n.Output[0]
			}
		}
	}
	return ""
}
