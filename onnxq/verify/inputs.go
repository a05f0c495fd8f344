package verify

import (
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/samples"
)

// MostSamples bounds the runs of each model.
const MostSamples = samples.Default

// trial has the inputs of all runs. sizes are the symbolic dimensions of random inputs.
type trial struct {
	inputs [][]*execute.Tensor
	sizes  string
}

// inputs makes the inputs of each run: of several sizes, if they are random. The first that the float
// model takes are used.
func (v *verifier) inputs(path string) ([]trial, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if len(v.opts.Inputs) > 0 {
		all, err := v.read(m)
		return []trial{{inputs: all}}, err
	}
	var trials []trial
	held := bound{what: "inputs"}
	for _, usual := range execute.UsualSizes {
		inputs, err := execute.Inputs(m, execute.InputOptions{Seed: v.opts.Seed, Dims: v.opts.Dims, Usual: usual})
		if err == nil && len(trials) > 0 {
			err = held.add(inputs)
		}
		if err != nil && len(trials) == 0 {
			return nil, err
		}
		sizes := strings.Join(execute.Sizes(m, inputs), ", ")
		if err != nil || slices.ContainsFunc(trials, func(t trial) bool { return t.sizes == sizes }) {
			continue
		}
		trials = append(trials, trial{[][]*execute.Tensor{inputs}, sizes})
	}
	return trials, nil
}

// read reads the inputs of each run from files.
func (v *verifier) read(m *modelfile.Model) (all [][]*execute.Tensor, err error) {
	data, err := samples.OpenWhole(m, v.opts.Inputs, MostSamples)
	if err != nil {
		return nil, err
	}
	held := bound{what: "inputs"}
	for inputs, err := range data.All() {
		if err == nil {
			err = held.add(inputs)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, inputs)
	}
	return all, nil
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
func described(all [][]*execute.Tensor) []Input {
	list := []Input{}
	for _, t := range all[0] {
		list = append(list, Input{t.Name, t.DType.String(), t.Dims})
	}
	return list
}
