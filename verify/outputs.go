package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/internal/execute"
	"onnxquant/internal/execute/evaluate"
	"onnxquant/internal/execute/ort"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/samples"
)

// execute compares the outputs, in the first engine that can run both models.
func (v *verifier) execute(float, quantized string) error {
	x := &v.report.Execution
	if v.opts.Engine == None {
		x.Reasons = append(x.Reasons, "the engine is none")
		return nil
	}
	all, hint, err := v.inputs(float)
	if err != nil && len(v.opts.Inputs)+len(v.opts.Dims) > 0 {
		return err
	}
	if err != nil {
		x.Reasons = append(x.Reasons, err.Error())
		return nil
	}
	for _, t := range all[0] {
		x.Inputs = append(x.Inputs, Input{t.Name, t.DType.String(), t.Dims})
	}
	engines := []Engine{v.opts.Engine}
	if v.opts.Engine == Auto || v.opts.Engine == "" {
		engines = []Engine{Go, ORT}
	}
	for _, engine := range engines {
		runner, err := v.runner(engine)
		if err == nil {
			x.Outputs, err = v.compare(runner, float, quantized, all, hint)
		}
		if err == nil && !slices.ContainsFunc(x.Outputs, func(o Output) bool { return o.Elements > 0 || o.Broken > 0 }) {
			err = fmt.Errorf("%s: %s", runner.Name(), nothingCompared(all))
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		if err == nil {
			x.Compared, x.Engine, x.Samples = true, runner.Name(), len(all)
			if r, ok := runner.(*ort.Runner); ok {
				x.Library = r.Library()
			}
			return nil
		}
		x.Reasons = append(x.Reasons, err.Error())
	}
	x.Outputs = []Output{}
	return nil
}

// nothingCompared says why outputs have no element to compare.
func nothingCompared(all [][]*execute.Tensor) string {
	for _, inputs := range all {
		for _, t := range inputs {
			if len(t.Data) == 0 {
				return fmt.Sprintf("no output has a finite element, and input %s has no rows: its shape is %d", msg.Quote(t.Name), t.Dims)
			}
		}
	}
	return "no output has a finite element"
}

// MostSamples bounds the runs of each model.
const MostSamples = samples.Default

// inputs makes the inputs of each run. If they are random, hint says how to choose their sizes.
func (v *verifier) inputs(path string) (all [][]*execute.Tensor, hint string, err error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer m.Close()
	if len(v.opts.Inputs) > 0 {
		all, err = v.read(m)
		return all, "", err
	}
	inputs, err := execute.Inputs(m, execute.InputOptions{Seed: v.opts.Seed, Dims: v.opts.Dims})
	if sizes := execute.Sizes(m, inputs); len(sizes) > 0 {
		hint = fmt.Sprintf("; the sizes were %s, --dim NAME=N sets others", strings.Join(sizes, ", "))
	}
	return [][]*execute.Tensor{inputs}, hint, err
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

func (v *verifier) runner(engine Engine) (execute.Runner, error) {
	switch engine {
	case ORT:
		return ort.Find(v.ctx, v.opts.ORTLibrary)
	case OnnxGo:
		return evaluate.OnnxGo()
	case Go:
		if v.opts.Timeout > 0 {
			return evaluate.Go, nil // the time bounds it
		}
		return evaluate.Bounded, nil
	}
	return nil, fmt.Errorf("%w: there is no engine %q", ErrOptions, engine)
}

// compare runs both models, within the time that is allowed. If the first run fails, the error
// ends with hint.
func (v *verifier) compare(runner execute.Runner, float, quantized string, all [][]*execute.Tensor, hint string) ([]Output, error) {
	ctx := v.ctx
	if v.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, v.opts.Timeout, fmt.Errorf("stopped after %v", v.opts.Timeout))
		defer cancel()
	}
	run := func(which, path string) (outputs [][]*execute.Tensor, err error) {
		progress := v.stage(fmt.Sprintf("running the %s model in %s", which, runner.Name()))
		s, err := evaluate.Reporting(runner, progress).Session(ctx, path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		held := bound{what: "outputs"}
		for _, inputs := range all {
			list, err := s.Run(inputs)
			if err == nil && len(all) > 1 {
				err = held.add(list)
			}
			if err != nil {
				return nil, err
			}
			outputs = append(outputs, list)
		}
		return outputs, nil
	}
	want, err := run("float", float)
	if err != nil {
		switch {
		case errors.Is(err, evaluate.ErrBudget):
			hint = "; --timeout TIME lets it take more, --engine ort is faster"
		case errors.Is(err, execute.ErrUnsupported) || ctx.Err() != nil:
			hint = ""
		}
		return nil, fmt.Errorf("%s: the float model: %w%s", runner.Name(), err, hint)
	}
	got, err := run("dequantized", quantized)
	if err != nil {
		return nil, fmt.Errorf("%s: the dequantized model: %w", runner.Name(), err)
	}
	list, err := execute.Compare(want, got)
	outputs := []Output{}
	for i, o := range list {
		outputs = append(outputs, Output{
			Name: o.Name, DType: o.DType, Dims: o.Dims, MaxError: o.MaxError, Relative: o.Relative, SQNR: o.SQNR,
			Cosine: o.Cosine, Elements: o.Elements, Broken: o.Broken,
			Distribution: compareDistributions(want, got, i, slices.Contains(v.opts.Logits, o.Name)),
		})
	}
	return outputs, err
}
