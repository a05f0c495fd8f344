// Package verify compares a float model with the quantized one that was made of
// it, by any tool: whether anything but weights changed, how far each weight is
// from what it was, and how far the outputs are from each other when both run on
// the same inputs.
//
// To compare them, quantized weights are folded back to float, in a temporary
// folder, which takes the disk space of the float model. The models run in pure
// Go where that has their operators, else in ONNX Runtime where that is found.
package verify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"onnxquant/internal/execute"
	"onnxquant/internal/execute/evaluate"
	"onnxquant/internal/execute/ort"
	"onnxquant/internal/modelfile"
	"onnxquant/onnxq"
)

// Engine says what runs the models.
type Engine string

const (
	Auto Engine = "auto" // Go, or else ORT; it is no failure if neither can
	Go   Engine = "go"   // pure Go
	ORT  Engine = "ort"  // ONNX Runtime, through the helper onnxquant-ort
	None Engine = "none" // the models do not run
)

// Engines lists what Options.Engine may be.
var Engines = []Engine{Auto, Go, ORT, None}

// Options say how models are compared. The zero value will do.
type Options struct {
	Engine     Engine // "": Auto
	ORTLibrary string // path of ONNX Runtime's shared library; "": found in the usual places

	// Inputs are files .pb (a TensorProto), .npy or .npz. Without, inputs are random:
	// normally distributed, or indices of the tables they select from, and decided by
	// Seed. Dims gives symbolic dimensions their sizes.
	Inputs []string
	Seed   uint64
	Dims   map[string]int64

	MinSQNR  *float64 // in dB: no weight and no output may be worse; nil: any may
	MaxError *float64 // no element of a weight or output may be further off; nil: any may
}

// Report tells how two models compare.
type Report struct {
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures"` // why not

	Structure Structure           `json:"structure"`
	Weights   []onnxq.WeightMatch `json:"weights"` // those that were quantized, or differ
	Same      int                 `json:"same"`    // float constants that are equal
	Execution Execution           `json:"execution"`
}

// Structure tells whether anything but weights changed.
type Structure struct {
	Nodes    int      `json:"nodes"`    // of the float model
	Problems []string `json:"problems"` // what else changed in what the model computes
	Notes    []string `json:"notes"`    // what changed besides, such as the opset
}

// Execution tells how far the outputs are from each other.
type Execution struct {
	Compared bool     `json:"compared"`
	Reasons  []string `json:"reasons"` // why not, or why not by the first engine
	Engine   string   `json:"engine,omitempty"`
	Inputs   []Input  `json:"inputs"`
	Outputs  []Output `json:"outputs"`
}

// Input describes what the models ran on.
type Input struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Dims  []int64 `json:"shape"`
}

// Output compares an output of the quantized model with that of the float model.
type Output = execute.Comparison

// Models compares the float model at in with the quantized one at out. That they
// differ is no error: the report tells.
func Models(ctx context.Context, in, out string, opts Options) (*Report, error) {
	removeLeftovers()
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	v := &verifier{ctx: ctx, opts: opts, report: &Report{Failures: []string{}, Execution: Execution{Reasons: []string{}, Inputs: []Input{}, Outputs: []Output{}}}}
	float, _, err := v.folded(in, filepath.Join(folder, "in"))
	if err != nil {
		return nil, err
	}
	quantized, weights, err := v.folded(out, filepath.Join(folder, "out"))
	if err != nil {
		return nil, err
	}
	if err := v.match(float, quantized, weights); err != nil {
		return nil, err
	}
	if err := v.execute(float, quantized); err != nil {
		return nil, err
	}
	v.judge()
	return v.report, nil
}

type verifier struct {
	ctx    context.Context
	opts   Options
	report *Report
}

// folded returns the path of a model whose weights are float: the model itself, or
// one in a new folder.
func (v *verifier) folded(path, folder string) (string, []onnxq.RewrittenWeight, error) {
	m, err := onnxq.Open(path)
	if err != nil {
		return "", nil, err
	}
	quantized := len(m.QuantizedWeights())
	m.Close()
	if quantized == 0 {
		return path, nil, nil
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", nil, err
	}
	made := filepath.Join(folder, "model.onnx")
	report, err := onnxq.Dequantize(v.ctx, path, made, onnxq.RewriteOptions{NoVerify: true})
	if err != nil {
		return "", nil, fmt.Errorf("%s cannot be folded back to float: %w", path, err)
	}
	return made, report.Weights, nil
}

func (v *verifier) match(float, quantized string, weights []onnxq.RewrittenWeight) error {
	a, err := onnxq.Open(float)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := onnxq.Open(quantized)
	if err != nil {
		return err
	}
	defer b.Close()
	m, err := onnxq.MatchWeights(v.ctx, a, b, weights)
	if err != nil {
		return err
	}
	v.report.Structure = Structure{m.Nodes, m.Problems, m.Notes}
	v.report.Weights, v.report.Same = m.Weights, m.Same
	return nil
}

// execute runs both models in the first engine that can.
func (v *verifier) execute(float, quantized string) error {
	x := &v.report.Execution
	if v.opts.Engine == None {
		x.Reasons = append(x.Reasons, "it was not asked for")
		return nil
	}
	inputs, err := v.inputs(float)
	if err != nil && len(v.opts.Inputs)+len(v.opts.Dims) > 0 {
		return err
	}
	if err != nil {
		x.Reasons = append(x.Reasons, err.Error())
		return nil
	}
	for _, t := range inputs {
		x.Inputs = append(x.Inputs, Input{t.Name, t.DType.String(), t.Dims})
	}
	for _, engine := range []Engine{Go, ORT} {
		if v.opts.Engine != engine && v.opts.Engine != Auto && v.opts.Engine != "" {
			continue
		}
		runner, err := v.runner(engine)
		if err == nil {
			x.Outputs, err = v.compare(runner, float, quantized, inputs)
		}
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		if err == nil {
			x.Compared, x.Engine = true, runner.Name()
			return nil
		}
		x.Reasons = append(x.Reasons, err.Error())
	}
	x.Outputs = []Output{}
	return nil
}

func (v *verifier) inputs(path string) ([]*execute.Tensor, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return execute.Inputs(m, execute.InputOptions{Files: v.opts.Inputs, Seed: v.opts.Seed, Dims: v.opts.Dims})
}

func (v *verifier) runner(engine Engine) (execute.Runner, error) {
	if engine == ORT {
		return ort.Find(v.opts.ORTLibrary)
	}
	return evaluate.Runner{}, nil
}

func (v *verifier) compare(runner execute.Runner, float, quantized string, inputs []*execute.Tensor) ([]Output, error) {
	want, err := runner.Run(v.ctx, float, inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: the float model: %w", runner.Name(), err)
	}
	got, err := runner.Run(v.ctx, quantized, inputs)
	if err != nil {
		return nil, fmt.Errorf("%s: the quantized model, folded back to float: %w", runner.Name(), err)
	}
	return execute.Compare(want, got)
}

// judge finds what is wrong with the quantized model.
func (v *verifier) judge() {
	r := v.report
	fail := func(format string, args ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, args...)) }
	for _, p := range r.Structure.Problems {
		fail("%s", p)
	}
	check := func(what, name string, sqnr, maxError float64, broken int) {
		if broken > 0 {
			fail("%s %q: %d elements are not finite, or no longer so", what, name, broken)
		}
		if least := v.opts.MinSQNR; least != nil && sqnr < *least {
			fail("%s %q: SQNR %.1f dB is below %g dB", what, name, sqnr, *least)
		}
		if most := v.opts.MaxError; most != nil && maxError > *most {
			fail("%s %q: an error of %.3g is above %g", what, name, maxError, *most)
		}
	}
	for _, w := range r.Weights {
		check("weight", w.Name, w.SQNR, w.MaxError, int(w.Broken))
	}
	for _, o := range r.Execution.Outputs {
		check("output", o.Name, o.SQNR, o.MaxError, o.Broken)
	}
	if asked := v.opts.Engine; !r.Execution.Compared && (asked == Go || asked == ORT) {
		fail("the outputs were not compared: %s", strings.Join(r.Execution.Reasons, "; "))
	}
	r.Passed = len(r.Failures) == 0
}
