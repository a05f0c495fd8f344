package verify

import (
	"fmt"

	"onnxquant/internal/fixdim"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/samples"
	"onnxquant/internal/run/synth"
)

// MostSamples bounds the runs of each model.
const MostSamples = samples.Default

// trial has the inputs of all runs. Those of a plan, which makes inputs, begin with one run.
type trial struct {
	inputs [][]*execute.Tensor
	data   *samples.Samples // in files
	plan   *synth.Plan      // nil: the inputs are from files
	small  bool             // larger ones were too much work
}

// sizes are the symbolic dimensions of made inputs.
func (t *trial) sizes() string {
	if t.plan == nil {
		return ""
	}
	return t.plan.Sizes
}

// inputs makes the inputs of a run, of several sizes, or reads those of each run. The first that the float
// model takes are used. Sizes that only the quantized model fixes hold for both.
func (v *verifier) inputs(float, quantized string) ([]trial, error) {
	m, err := modelfile.Open(float)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	fixed, err := modelfile.Open(quantized)
	if err != nil {
		return nil, err
	}
	defer fixed.Close()
	v.fixes = fixdim.Adopt(m.Proto.Graph.Input, fixed.Proto.Graph.Input)
	if len(v.opts.Inputs) > 0 {
		t, err := v.read(m)
		return []trial{t}, err
	}
	return v.made(m)
}

// made makes inputs of several sizes.
func (v *verifier) made(m *modelfile.Model) ([]trial, error) {
	plans, err := synth.Plans(m, synth.Options{Seed: v.opts.Seed, Dims: v.opts.Dims})
	if err != nil {
		return nil, err
	}
	var trials []trial
	held := bound{what: "inputs"}
	for i, plan := range plans {
		inputs, err := plan.Sample(0)
		if err == nil && i > 0 {
			err = held.add(inputs)
		}
		if err == nil {
			trials = append(trials, trial{inputs: [][]*execute.Tensor{inputs}, plan: plan})
		} else if i == 0 {
			return nil, err
		}
	}
	return trials, nil
}

// read reads the inputs of each run from files.
func (v *verifier) read(m *modelfile.Model) (t trial, err error) {
	if t.data, err = samples.OpenWhole(m, v.opts.Inputs, MostSamples); err != nil {
		return t, err
	}
	held := bound{what: "inputs"}
	for inputs, err := range t.data.All() {
		if err == nil {
			err = held.add(inputs)
		}
		if err != nil {
			return t, err
		}
		t.inputs = append(t.inputs, inputs)
	}
	return t, nil
}

// bound bounds the bytes of tensors that are held.
type bound struct {
	what  string
	bytes int
}

func (b *bound) add(list []*execute.Tensor) error {
	for _, t := range list {
		b.bytes += len(t.Data)
	}
	if b.bytes > execute.MaxBytes {
		return fmt.Errorf("the %s are larger than %d MiB; give fewer samples", b.what, execute.MaxBytes>>20)
	}
	return nil
}

// described describes the inputs of the first run.
func described(t *trial) []Input {
	list := []Input{}
	var made []string
	if t.plan != nil {
		made = t.plan.Made()
	}
	for i, x := range t.inputs[0] {
		in := Input{Name: x.Name, DType: x.DType.String(), Dims: x.Dims}
		if made != nil {
			in.Made = made[i]
		}
		list = append(list, in)
	}
	return list
}
