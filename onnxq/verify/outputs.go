package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
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
	trials, err := v.inputs(float, quantized)
	if err != nil && len(v.opts.Inputs)+len(v.opts.Dims) > 0 {
		return err
	}
	if err != nil {
		x.Reasons = append(x.Reasons, err.Error())
		return nil
	}
	type attempt struct {
		engine  Engine
		smaller bool // if the usual inputs are too much work, smaller ones are tried
	}
	attempts := []attempt{{v.opts.Engine, true}}
	if v.opts.Engine == Auto || v.opts.Engine == "" {
		attempts = []attempt{{Go, false}, {ORT, false}, {Go, true}}
	}
	budget := false
	for i, a := range attempts {
		if i == 2 && !budget {
			break
		}
		runner, err := v.runner(a.engine)
		var used trial
		if err == nil {
			used, err = v.compare(runner, float, quantized, trials, a.smaller)
		}
		budget = budget || errors.Is(err, evaluate.ErrBudget)
		if err == nil && !slices.ContainsFunc(x.Outputs, func(o Output) bool { return o.Elements > 0 || o.Broken > 0 }) {
			err = fmt.Errorf("%s: %s", runner.Name(), nothingCompared(used.inputs))
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		if err == nil {
			x.Compared, x.Engine, x.Samples = true, runner.Name(), len(used.inputs)
			x.Inputs, x.Sizes = described(&used), used.sizes()
			if r, ok := runner.(*ort.Runner); ok {
				x.Library = r.Library()
			}
			if v.opts.Trace {
				v.trace(runner, cmp.Or(v.folded, float), quantized, used)
			}
			if used.small {
				v.warn("the inputs are smaller than usual ones, which would be too much for %s: the outputs show less", runner.Name())
			}
			return nil
		}
		x.Reasons = append(x.Reasons, err.Error())
	}
	x.Inputs, x.Outputs = described(&trials[0]), []Output{}
	if x.QuantizedRun != nil && !x.QuantizedRun.Broken {
		x.QuantizedRun = nil
	}
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
		return v.findORT()
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

// findORT finds ONNX Runtime. If the user gives a time, that bounds its runs: see limited.
func (v *verifier) findORT() (*ort.Runner, error) {
	r, err := ort.Find(v.ctx, v.opts.ORTLibrary)
	if err != nil || v.opts.Timeout == 0 {
		return r, err
	}
	return r.Within(2 * v.opts.Timeout), nil
}

// compare runs both models, within the allowed time. It returns the inputs that it used.
func (v *verifier) compare(runner execute.Runner, float, quantized string, trials []trial, smaller bool) (trial, error) {
	ctx, cancel := v.limited()
	defer cancel()
	session := func(which, path string) (execute.Session, error) {
		progress := v.stage(fmt.Sprintf("running the %s model in %s", which, runner.Name()))
		exact, _ := exactly(runner, path)
		return evaluate.Reporting(exact, v.overRuns(progress)).Session(ctx, path)
	}
	v.runs = 1
	open := func() (execute.Session, error) { return session("float", float) }
	used, want, err := v.firstThatRuns(ctx, open, trials, smaller)
	if err != nil {
		if broken(ctx, err) && v.fits(ctx, open, float) {
			v.stops = cmp.Or(v.stops, fmt.Sprintf("%s runs IN, but not with the sizes that OUT fixes, %s: %v", runner.Name(), strings.Join(v.fixes, ", "), err))
		}
		return used, fmt.Errorf("%s: the float model: %w", runner.Name(), err)
	}
	v.least = 0x1p-30 * largestOf(used.inputs)
	run := func(which, path string) ([][]*execute.Tensor, error) {
		s, err := session(which, path)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return used.runAll(s)
	}
	x := &v.report.Execution
	x.NotFinite = notFinite(used.inputs, want)
	got, err := run("dequantized", quantized)
	if err != nil && runner.Name() == evaluate.Go.Name() && broken(ctx, err) { // in ONNX Runtime, OUT itself shows it
		v.stops = fmt.Sprintf("%s runs IN and does not run OUT: %v", runner.Name(), err)
	}
	if err == nil {
		x.Outputs, err = v.outputs(want, got)
	}
	if err != nil {
		if _, real := runner.(*ort.Runner); real { // it may be the fault of OUT
			v.itself(runner, used, want, float == v.in)
			if own := v.report.Execution.QuantizedRun; own != nil && own.Reason == "" {
				v.stops = "" // of pure Go
			}
		}
		return used, fmt.Errorf("%s: the dequantized model: %w", runner.Name(), err)
	}
	if v.folded != "" {
		same, err := run("folded", v.folded)
		if err != nil {
			return used, fmt.Errorf("%s: the folded model: %w", runner.Name(), err)
		}
		if err := v.compareFolded(want, same); err != nil {
			return used, err
		}
	}
	v.reach(ctx, runner, cmp.Or(v.folded, float), used)
	if _, changed := exactly(runner, quantized); quantized != v.out || changed || runner.Name() == evaluate.Go.Name() {
		v.itself(runner, used, want, float == v.in)
	}
	if v.second != nil {
		v.agree(used, float, quantized, want, got)
	}
	return used, nil
}

// exactly returns the runner for a model with float weights. Optimizations of ONNX Runtime quantize such weights anew
// where codes of activations are beside them, so a model with these runs without: the runner is changed.
func exactly(runner execute.Runner, path string) (exact execute.Runner, changed bool) {
	r, real := runner.(*ort.Runner)
	if !real {
		return runner, false
	}
	m, err := modelfile.Open(path)
	if err != nil {
		return runner, false // which says why
	}
	defer m.Close()
	graph.WalkNodes(m.Proto, func(n *onnxpb.NodeProto) { changed = changed || n.GetOpType() == "QuantizeLinear" })
	if changed {
		return r.Plain(), true
	}
	return runner, false
}

// broken reports whether a run failed because of the model: not for lack of an operator, of memory or of time.
func broken(ctx context.Context, err error) bool {
	lacks := errors.Is(err, execute.ErrUnsupported) || errors.Is(err, ort.ErrKilled) || strings.Contains(err.Error(), "Failed to allocate memory")
	return ctx.Err() == nil && !lacks
}

// fits reports whether IN runs with sizes of its own, where OUT fixes others.
func (v *verifier) fits(ctx context.Context, open func() (execute.Session, error), float string) bool {
	if len(v.fixes) == 0 || len(v.opts.Inputs) > 0 {
		return false
	}
	m, err := modelfile.Open(float)
	if err != nil {
		return false
	}
	defer m.Close()
	trials, err := v.made(m)
	if err != nil {
		return false
	}
	_, _, err = v.firstThatRuns(ctx, open, trials, true)
	return err == nil
}

// largestOf is the largest absolute value of float tensors.
func largestOf(all [][]*execute.Tensor) (largest float64) {
	for _, list := range all {
		for _, t := range list {
			if !t.IsFloat() {
				continue
			}
			for _, x := range t.Float64s() {
				if x-x == 0 {
					largest = max(largest, math.Abs(x))
				}
			}
		}
	}
	return largest
}

// overRuns returns a function that is told the progress of each run, and tells that of all runs.
func (v *verifier) overRuns(progress func(done, total int64)) func(done, total int64) {
	finished, last := int64(0), int64(0)
	return func(done, total int64) {
		if done < last {
			finished++
		}
		last = done
		progress(finished*total+done, max(int64(v.runs), finished+1)*total)
	}
}

// sizeOf is the size of a model with its external data; 0 if it cannot be opened, of which the engine tells.
func sizeOf(path string) int64 {
	m, err := modelfile.Open(path)
	if err != nil {
		return 0
	}
	defer m.Close()
	return m.Size()
}

// outputs compares the outputs of all runs.
func (v *verifier) outputs(want, got [][]*execute.Tensor) ([]Output, error) {
	list, err := execute.Compare(want, got)
	outputs := []Output{}
	for i, o := range list {
		outputs = append(outputs, Output{
			Name: o.Name, DType: o.DType, Dims: o.Dims, MaxError: o.MaxError, Relative: o.Relative, SQNR: o.SQNR,
			Cosine: o.Cosine, State: slices.Contains(v.states, o.Name), Elements: o.Elements, Broken: o.Broken,
			Rows: rowsOf(want, i), Varying: varyingSQNR(want, got, i),
			Distribution: compareDistributions(want, got, i, slices.Contains(v.opts.Logits, o.Name)),
		})
	}
	return outputs, err
}

// firstThatRuns runs a model with the first inputs that it accepts. If it accepts none, the error is
// that of the first trial. With smaller, inputs that are too much work are no reason to stop.
func (v *verifier) firstThatRuns(ctx context.Context, open func() (execute.Session, error), trials []trial, smaller bool) (used trial, outputs [][]*execute.Tensor, err error) {
	s, err := open()
	if err != nil {
		return used, nil, err
	}
	defer s.Close()
	var first error
	small := false
	for _, t := range trials {
		t.small = small
		start := time.Now()
		outputs, err := t.runAll(s)
		if err == nil && t.plan != nil {
			outputs, err = v.extend(&t, s, outputs[0], time.Since(start))
		}
		unsupported := errors.Is(err, execute.ErrUnsupported) && !(smaller && errors.Is(err, evaluate.ErrBudget))
		switch {
		case err == nil:
			return t, outputs, nil
		case errors.Is(err, evaluate.ErrBudget):
			err = fmt.Errorf("%w; --timeout TIME lets it take more, --engine ort is faster", err)
		case t.sizes() != "" && !unsupported && ctx.Err() == nil:
			err = fmt.Errorf("%w; the sizes were %s, --dim NAME=N sets others", err, t.sizes())
		}
		first = cmp.Or(first, err)
		small = small || errors.Is(err, evaluate.ErrBudget)
		if unsupported || ctx.Err() != nil {
			break
		}
	}
	return used, nil, first
}

// The time and work that more made inputs may take, of each model.
const (
	timeOfSamples = 4 * time.Second
	workOfSamples = 1e10 // multiply-adds of the Go engine
)

// extend makes inputs for more runs of a float model, and runs it: as many as show enough decisions, and fewer
// if they take long. outputs are those of the first run, which took a time.
func (v *verifier) extend(t *trial, s execute.Session, outputs []*execute.Tensor, took time.Duration) (all [][]*execute.Tensor, err error) {
	all = [][]*execute.Tensor{outputs}
	n := t.plan.Samples(outputs)
	if w, ok := s.(interface{ Work() float64 }); ok {
		n = min(n, int(workOfSamples/max(w.Work(), 1)))
	} else {
		n = min(n, int(timeOfSamples/max(took, 1)))
	}
	v.runs = n
	for i := 1; i < n; i++ {
		inputs, err := t.plan.Sample(i)
		if err != nil {
			return nil, err
		}
		t.plan.Carry(inputs, all[i-1])
		outputs, err := s.Run(inputs)
		if err != nil {
			return nil, err
		}
		t.inputs, all = append(t.inputs, inputs), append(all, outputs)
	}
	return all, nil
}

// runAll runs a model with the inputs of each run. An error names the sample.
func (t *trial) runAll(s execute.Session) (outputs [][]*execute.Tensor, err error) {
	held := bound{what: "outputs"}
	for i, inputs := range t.inputs {
		list, err := s.Run(inputs)
		if err != nil && t.data != nil && len(t.inputs) > 1 {
			err = fmt.Errorf("%s: %w", t.data.Name(i), err)
		}
		if err == nil && len(t.inputs) > 1 {
			err = held.add(list)
		}
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, list)
	}
	return outputs, nil
}
