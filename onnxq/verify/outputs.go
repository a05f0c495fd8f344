package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/msg"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/ort"
)

// execute compares the outputs, in the first engine that can run both models.
func (v *verifier) execute(float, quantized string) error {
	x := &v.report.Execution
	if v.opts.Engine == None {
		x.Reasons = append(x.Reasons, "the engine is none")
		return nil
	}
	trials, err := v.inputs(float)
	if err != nil && len(v.opts.Inputs)+len(v.opts.Dims) > 0 {
		return err
	}
	if err != nil {
		x.Reasons = append(x.Reasons, err.Error())
		return nil
	}
	engines := []Engine{v.opts.Engine}
	if v.opts.Engine == Auto || v.opts.Engine == "" {
		engines = []Engine{Go, ORT}
	}
	for _, engine := range engines {
		runner, err := v.runner(engine)
		var used trial
		if err == nil {
			used, err = v.compare(runner, float, quantized, trials)
		}
		if err == nil && !slices.ContainsFunc(x.Outputs, func(o Output) bool { return o.Elements > 0 || o.Broken > 0 }) {
			err = fmt.Errorf("%s: %s", runner.Name(), nothingCompared(used.inputs))
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		if err == nil {
			x.Compared, x.Engine, x.Samples = true, runner.Name(), len(used.inputs)
			x.Inputs, x.Sizes = described(used.inputs), used.sizes
			if r, ok := runner.(*ort.Runner); ok {
				x.Library = r.Library()
			}
			return nil
		}
		x.Reasons = append(x.Reasons, err.Error())
	}
	x.Inputs, x.Outputs, x.QuantizedRun = described(trials[0].inputs), []Output{}, nil
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

// compare runs both models, within the allowed time. It returns the inputs that it used.
func (v *verifier) compare(runner execute.Runner, float, quantized string, trials []trial) (trial, error) {
	ctx := v.ctx
	if v.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, v.opts.Timeout, fmt.Errorf("stopped after %v", v.opts.Timeout))
		defer cancel()
	}
	session := func(which, path string) (execute.Session, error) {
		progress := v.stage(fmt.Sprintf("running the %s model in %s", which, runner.Name()))
		return evaluate.Reporting(runner, progress).Session(ctx, path)
	}
	used, want, err := firstThatRuns(ctx, func() (execute.Session, error) { return session("float", float) }, trials)
	if err != nil {
		return used, fmt.Errorf("%s: the float model: %w", runner.Name(), err)
	}
	run := func(which, path string) ([][]*execute.Tensor, error) {
		s, err := session(which, path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return runAll(s, used.inputs)
	}
	x := &v.report.Execution
	got, err := run("dequantized", quantized)
	if err == nil {
		x.Outputs, err = v.outputs(want, got)
	}
	if err != nil {
		return used, fmt.Errorf("%s: the dequantized model: %w", runner.Name(), err)
	}
	if _, real := runner.(*ort.Runner); !real || quantized == v.out {
		return used, nil
	}
	x.QuantizedRun = &QuantizedRun{Outputs: []Output{}}
	if float != v.in { // IN has codes: compare with IN as it is too
		if want, err = run("first", v.in); err != nil {
			err = fmt.Errorf("it does not run IN itself: %w", err)
		}
	}
	if err == nil {
		got, err = run("quantized", v.out)
	}
	if err == nil {
		x.QuantizedRun.Outputs, err = v.outputs(want, got)
	}
	if err != nil {
		x.QuantizedRun = &QuantizedRun{Reason: err.Error(), Outputs: []Output{}}
	}
	return used, nil
}

// outputs compares the outputs of all runs.
func (v *verifier) outputs(want, got [][]*execute.Tensor) ([]Output, error) {
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

// firstThatRuns runs a model with the first inputs that it accepts. If it accepts none, the error is
// that of the first trial.
func firstThatRuns(ctx context.Context, open func() (execute.Session, error), trials []trial) (used trial, outputs [][]*execute.Tensor, err error) {
	s, err := open()
	if err != nil {
		return used, nil, err
	}
	defer s.Close()
	var first error
	for _, t := range trials {
		outputs, err := runAll(s, t.inputs)
		switch {
		case err == nil:
			return t, outputs, nil
		case errors.Is(err, evaluate.ErrBudget):
			err = fmt.Errorf("%w; --timeout TIME lets it take more, --engine ort is faster", err)
		case t.sizes != "" && !errors.Is(err, execute.ErrUnsupported) && ctx.Err() == nil:
			err = fmt.Errorf("%w; the sizes were %s, --dim NAME=N sets others", err, t.sizes)
		}
		first = cmp.Or(first, err)
		if errors.Is(err, execute.ErrUnsupported) || ctx.Err() != nil {
			break
		}
	}
	return used, nil, first
}

// runAll runs a model with the inputs of each run.
func runAll(s execute.Session, all [][]*execute.Tensor) (outputs [][]*execute.Tensor, err error) {
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
