// Package verify compares a float model with a quantized model made from it, by any
// tool. It reports
//
//   - whether anything but weights changed,
//   - the error of each weight,
//   - the error of each output, when both models run on the same inputs.
//
// It first dequantizes the weights to a model in a temporary folder, which takes as
// much disk space as the float model. The models run in pure Go if that supports
// their operators, else in ONNX Runtime if that is found.
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
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/restyle"
)

// Engine is a runtime for the models.
type Engine string

const (
	Auto Engine = "auto" // Go, else ORT; it is not a failure if neither can run the models
	Go   Engine = "go"   // pure Go
	ORT  Engine = "ort"  // ONNX Runtime, through the helper onnxquant-ort
	None Engine = "none" // do not run the models
)

// Engines lists the values of Options.Engine.
var Engines = []Engine{Auto, Go, ORT, None}

// Options are the options of Models. The zero value has the defaults.
type Options struct {
	Engine     Engine // "": Auto
	ORTLibrary string // path of ONNX Runtime's shared library; "": search the usual places

	// Inputs are files with inputs: .pb (a TensorProto), .npy or .npz. Without files,
	// inputs are random: normally distributed floats, or valid indices of a table.
	Inputs []string
	Seed   uint64           // of random inputs
	Dims   map[string]int64 // sizes of symbolic dimensions

	MinSQNR  *float64 // lower limit of the SQNR of weights and outputs, in dB; nil: none
	MaxError *float64 // upper limit of the error of elements of both; nil: none
}

// Report is the result of a comparison.
type Report struct {
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures"` // empty if passed

	Structure Structure             `json:"structure"`
	Weights   []compare.WeightMatch `json:"weights"` // weights that are quantized or differ
	Same      int                   `json:"same"`    // number of equal float constants
	Execution Execution             `json:"execution"`
}

// Structure compares everything but weights.
type Structure struct {
	Nodes    int      `json:"nodes"`    // of the float model
	Problems []string `json:"problems"` // differences in the computation
	Notes    []string `json:"notes"`    // other differences, such as the opset
}

// Execution compares the outputs.
type Execution struct {
	Compared bool     `json:"compared"`
	Reasons  []string `json:"reasons"` // why an engine did not run the models
	Engine   string   `json:"engine,omitempty"`
	Inputs   []Input  `json:"inputs"`
	Outputs  []Output `json:"outputs"`
}

// Input describes an input of the run.
type Input struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Dims  []int64 `json:"shape"`
}

// Output compares an output of the quantized model with that of the float model.
type Output = execute.Comparison

// Models compares the float model at in with the quantized model at out. Differences
// are not an error; they are in the report.
func Models(ctx context.Context, in, out string, opts Options) (*Report, error) {
	removeLeftovers()
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	v := &verifier{ctx: ctx, opts: opts, report: &Report{Failures: []string{}, Execution: Execution{Reasons: []string{}, Inputs: []Input{}, Outputs: []Output{}}}}
	float, _, err := v.dequantized(in, filepath.Join(folder, "in"))
	if err != nil {
		return nil, err
	}
	quantized, weights, err := v.dequantized(out, filepath.Join(folder, "out"))
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

// dequantized returns the path of a model with float weights: the model itself if it
// has no quantized ones, else a new model in a new folder.
func (v *verifier) dequantized(path, folder string) (string, []restyle.Weight, error) {
	m, err := onnxq.Open(path)
	if err != nil {
		return "", nil, err
	}
	quantized := len(recognize.Weights(m.Graph()))
	m.Close()
	if quantized == 0 {
		return path, nil, nil
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", nil, err
	}
	made := filepath.Join(folder, "model.onnx")
	report, err := restyle.Dequantize(v.ctx, path, made, restyle.Options{NoVerify: true})
	if err != nil {
		return "", nil, fmt.Errorf("%s: cannot dequantize its weights: %w", path, err)
	}
	return made, report.Weights, nil
}

// match compares the structures and the weights.
func (v *verifier) match(float, quantized string, weights []restyle.Weight) error {
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
	m, err := compare.MatchWeights(v.ctx, a, b, weights)
	if err != nil {
		return err
	}
	v.report.Structure = Structure{m.Nodes, m.Problems, m.Notes}
	v.report.Weights, v.report.Same = m.Weights, m.Same
	return nil
}

// execute compares the outputs, in the first engine that can run both models.
func (v *verifier) execute(float, quantized string) error {
	x := &v.report.Execution
	if v.opts.Engine == None {
		x.Reasons = append(x.Reasons, "the engine is none")
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
		return nil, fmt.Errorf("%s: the dequantized model: %w", runner.Name(), err)
	}
	return execute.Compare(want, got)
}

// judge lists the failures.
func (v *verifier) judge() {
	r := v.report
	fail := func(format string, args ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, args...)) }
	for _, p := range r.Structure.Problems {
		fail("%s", p)
	}
	check := func(what, name string, sqnr, maxError float64, broken int) {
		if broken > 0 {
			fail("%s %q: %d elements are NaN or infinite in one model and different in the other", what, name, broken)
		}
		if least := v.opts.MinSQNR; least != nil && sqnr < *least {
			fail("%s %q: SQNR %.1f dB is below %g dB", what, name, sqnr, *least)
		}
		if most := v.opts.MaxError; most != nil && maxError > *most {
			fail("%s %q: largest error %.3g is above %g", what, name, maxError, *most)
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
