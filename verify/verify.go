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
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"onnxquant/internal/access"
	"onnxquant/internal/execute"
	"onnxquant/internal/execute/evaluate"
	"onnxquant/internal/execute/ort"
	"onnxquant/internal/intops"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/samples"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/provenance"
	"onnxquant/onnxq/restyle"
	"onnxquant/onnxq/spec"
)

// Engine is a runtime for the models.
type Engine string

const (
	Auto   Engine = "auto"    // Go, else ORT; it is not a failure if neither can run the models
	Go     Engine = "go"      // pure Go
	ORT    Engine = "ort"     // ONNX Runtime, through the program onnxquant-ort
	OnnxGo Engine = "onnx-go" // the arithmetic of onnx-go, in builds with the tag onnxgo
	None   Engine = "none"    // do not run the models
)

// Engines lists the values of Options.Engine.
var Engines = []Engine{Auto, Go, ORT, OnnxGo, None}

// Options are the options of Models. The zero value has the defaults.
type Options struct {
	Engine     Engine // "": Auto
	ORTLibrary string // path of ONNX Runtime's shared library; "": search the usual places

	// Inputs are files and folders with inputs: .pb (a TensorProto), .npy, .npz or .jsonl. Arrays that fit
	// the inputs of the model are one sample; otherwise data divide into samples as in package
	// onnxq/calibrate, of which the first MostSamples are used. Without files, inputs are
	// random: normally distributed floats, or valid indices of a table.
	Inputs []string
	Seed   uint64           // of random inputs
	Dims   map[string]int64 // sizes of symbolic dimensions
	Logits []string         // outputs that are logits, besides those with logit in their names

	MinSQNR       *float64 // lower limit of the SQNR of weights and outputs, in dB; nil: LeastSQNR, LeastFineSQNR, LeastOutputSQNR
	MinOutputSQNR *float64 // lower limit of the SQNR of outputs, in dB; nil: MinSQNR
	MinCosine     *float64 // lower limit of the cosine of outputs; nil: LeastCosine
	MaxError      *float64 // upper limit of the error of elements of weights and outputs; nil: none

	Detail bool // describe each quantized weight in detail: compare.Detail

	Timeout time.Duration // of an engine for running both models; 0: none

	// Progress, if set, is called with what is done next, and then with how much of it is done;
	// total is 0 where that is not known.
	Progress func(stage string, done, total int64)

	// RequireOutputs makes it a failure if the outputs were not compared. nil: if an engine,
	// inputs, dimensions or a limit that applies to outputs are given, unless Engine is None.
	RequireOutputs *bool
}

// Default limits, in dB. docs/verify.md says how they were chosen.
const (
	LeastSQNR       = 0.5 // of a weight whose codes have 2 bits
	LeastFineSQNR   = 6.0 // of another weight
	LeastBlockSQNR  = 0.1 // of its worst block, if the error of the block matters
	MostMisfit      = 3.0 // of a weight of more than 2 bits: compare.WeightMatch.Misfit
	LeastOutputSQNR = 0.0 // of an output
	LeastCosine     = 0.5 // of an output, not in dB
)

// Default limits of codes that data found, as the record of the model says. Those of more than 2 bits stay
// near the weights, but for algorithm best.
const (
	LeastCalibratedSQNR      = -3   // in dB, of a weight whose codes have 2 bits
	LeastBestFineSQNR        = 1    // in dB, of another weight, with algorithm best
	LeastCalibratedBlockSQNR = -15  // in dB, of a block of 2 bits
	LeastBestFineBlockSQNR   = -8   // in dB, of another block, with algorithm best
	LeastBlockCosine         = -0.3 // of a block of 2 bits
	LeastBestBlockCosine     = -0.6 // of a block of 2 bits, with algorithm best
	LeastFineBlockCosine     = -0.2 // of another block
	MostCalibratedMisfit     = 6.0  // in dB
)

// Limits are the limits that a comparison used: those of Options, else the defaults.
type Limits struct {
	SQNR            float64  `json:"sqnr_db"`            // least of a weight whose codes have 2 bits
	FineSQNR        float64  `json:"fine_sqnr_db"`       // least of another weight
	BlockSQNR       float64  `json:"block_sqnr_db"`      // least of the worst block of a weight whose codes have 2 bits
	FineBlockSQNR   float64  `json:"fine_block_sqnr_db"` // least of that of another weight
	BlockCosine     float64  `json:"block_cosine"`       // least of the block that is least like a weight whose codes have 2 bits; -1: none
	FineBlockCosine float64  `json:"fine_block_cosine"`  // least of that of another weight; -1: none
	Misfit          float64  `json:"misfit_db"`          // most of a weight of more than 2 bits
	OutputSQNR      float64  `json:"output_sqnr_db"`     // least of an output
	Cosine          float64  `json:"cosine"`             // least of an output
	MaxError        *float64 `json:"max_error,omitempty"`
}

// limits returns the limits of the options for a model whose codes an algorithm has found by data; "":
// none has.
func (o *Options) limits(calibrated spec.Algorithm) Limits {
	l := Limits{
		SQNR: LeastSQNR, FineSQNR: LeastFineSQNR, BlockSQNR: LeastBlockSQNR, FineBlockSQNR: LeastBlockSQNR, BlockCosine: -1, FineBlockCosine: -1,
		Misfit: MostMisfit, OutputSQNR: LeastOutputSQNR, Cosine: LeastCosine, MaxError: o.MaxError,
	}
	if calibrated != "" {
		l.SQNR, l.BlockSQNR, l.Misfit = LeastCalibratedSQNR, LeastCalibratedBlockSQNR, MostCalibratedMisfit
		l.BlockCosine, l.FineBlockCosine = LeastBlockCosine, LeastFineBlockCosine
	}
	if calibrated == spec.Best {
		l.FineSQNR, l.FineBlockSQNR, l.BlockCosine = LeastBestFineSQNR, LeastBestFineBlockSQNR, LeastBestBlockCosine
	}
	if o.MinSQNR != nil {
		l.SQNR, l.FineSQNR, l.BlockSQNR, l.OutputSQNR = *o.MinSQNR, *o.MinSQNR, min(l.BlockSQNR, *o.MinSQNR), *o.MinSQNR
		l.FineBlockSQNR = min(l.FineBlockSQNR, *o.MinSQNR)
	}
	if o.MinOutputSQNR != nil {
		l.OutputSQNR = *o.MinOutputSQNR
	}
	if o.MinCosine != nil {
		l.Cosine = *o.MinCosine
	}
	return l
}

// LimitsGiven reports whether a limit is given. The default limits find only broken models.
func (o *Options) LimitsGiven() bool {
	return o.MinSQNR != nil || o.MinOutputSQNR != nil || o.MinCosine != nil || o.MaxError != nil
}

// ErrOptions is wrapped by errors about options that contradict each other.
var ErrOptions = errors.New("contradictory options")

// Report is the result of a comparison.
type Report struct {
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures"` // empty if passed
	Limits   Limits   `json:"limits"`

	Failed map[Check]int `json:"-"` // number of Failures of each kind

	// Swapped: the first model has quantized weights and the second one has none.
	Swapped bool `json:"-"`

	Structure Structure             `json:"structure"`
	Weights   []compare.WeightMatch `json:"weights"` // weights that are quantized or differ
	Same      int                   `json:"same"`    // number of equal float constants
	Rounded   int                   `json:"rounded"` // those of them that are equal once rounded to float16 or bfloat16
	Execution Execution             `json:"execution"`
}

// Check is a kind of failure.
type Check string

const (
	CheckStructure Check = "structure" // something besides weights changed
	CheckWeights   Check = "weights"   // SQNR of weights
	CheckBlocks    Check = "blocks"    // SQNR of blocks of weights
	CheckOutputs   Check = "outputs"   // SQNR of outputs
	CheckCosine    Check = "cosine"    // of outputs
	CheckLargest   Check = "largest"   // error of elements
	CheckFinite    Check = "finite"    // elements that are finite in one model only
	CheckCompared  Check = "compared"  // the outputs were not compared although that is required
)

// Structure compares everything but weights.
type Structure struct {
	Nodes    int      `json:"nodes"`    // of the float model
	Problems []string `json:"problems"` // differences in the computation
	Notes    []string `json:"notes"`    // other differences, such as the opset

	// Activations counts the tensors that the quantized model alone has codes for when it runs, by
	// the type of the codes.
	Activations map[string]int `json:"activations,omitempty"`

	Half string `json:"half,omitempty"` // float16 or bfloat16, if float32 became that
}

// Execution compares the outputs.
type Execution struct {
	Required bool     `json:"required"` // it is a failure if the outputs were not compared
	Compared bool     `json:"compared"`
	Reasons  []string `json:"reasons"` // why an engine did not run the models
	Engine   string   `json:"engine,omitempty"`
	Library  string   `json:"library,omitempty"` // the file, if the engine is a shared library
	Samples  int      `json:"samples"`           // runs of each model
	Inputs   []Input  `json:"inputs"`            // of the first one
	Outputs  []Output `json:"outputs"`
}

// Input describes an input of the run.
type Input struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Dims  []int64 `json:"shape"`
}

// Output compares an output of the quantized model with that of the float model. Errors are
// quantized - float, element by element.
type Output struct {
	Name     string  `json:"name"`
	DType    string  `json:"dtype"`
	Dims     []int64 `json:"shape"`
	MaxError float64 `json:"max_error"`      // the largest |error|
	Relative float64 `json:"relative_error"` // MaxError over the largest |float|
	SQNR     float64 `json:"sqnr_db"`        // 10·log10(Σfloat² / Σerror²), at most 999; 999 if equal
	Cosine   float64 `json:"cosine"`         // of float and quantized; 1 if both are zero
	Elements int     `json:"elements"`       // pairs that were compared: both are finite

	// Broken counts pairs with a NaN or infinity in one and another value in the
	// other. The sums leave them out.
	Broken int `json:"broken,omitempty"`

	Distribution *Distribution `json:"distribution,omitempty"` // if rows of the output are known to be distributions
}

// NotCompared reports whether the only failure is that the outputs were not compared.
func (r *Report) NotCompared() bool {
	return len(r.Failures) == 1 && r.Execution.Required && !r.Execution.Compared
}

// Models compares the float model at in with the quantized model at out. Differences
// are not an error; they are in the report.
func Models(ctx context.Context, in, out string, opts Options) (*Report, error) {
	required, err := opts.outputsRequired()
	if err != nil {
		return nil, err
	}
	removeLeftovers()
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	v := &verifier{ctx: ctx, in: in, out: out, opts: opts, report: &Report{Failures: []string{}, Failed: map[Check]int{}, Execution: Execution{Required: required, Reasons: []string{}, Inputs: []Input{}, Outputs: []Output{}}}}
	float, quantized, err := v.match(folder)
	if err != nil {
		return nil, err
	}
	if err := v.execute(float, quantized); err != nil {
		return nil, err
	}
	v.judge()
	return v.report, nil
}

// outputsRequired reports whether it is a failure if the outputs are not compared.
func (o *Options) outputsRequired() (bool, error) {
	given := len(o.Inputs)+len(o.Dims) > 0 || o.MinOutputSQNR != nil || o.MinCosine != nil
	switch {
	case o.Engine == None && (given || o.RequireOutputs != nil && *o.RequireOutputs):
		return false, fmt.Errorf("%w: inputs, dimensions and limits of outputs need an engine", ErrOptions)
	case o.RequireOutputs != nil:
		return *o.RequireOutputs, nil
	case o.Engine == None:
		return false, nil
	}
	return given || o.Engine != Auto && o.Engine != "" || o.MinSQNR != nil || o.MaxError != nil, nil
}

type verifier struct {
	ctx     context.Context
	in, out string // the models' paths
	opts    Options
	report  *Report
}

// stage tells what is done next. The result tells how much of it is done.
func (v *verifier) stage(text string) (progress func(done, total int64)) {
	if v.opts.Progress == nil {
		return func(int64, int64) {}
	}
	v.opts.Progress(text, 0, 0)
	return func(done, total int64) { v.opts.Progress(text, done, total) }
}

// decoded is an open model with float weights.
type decoded struct {
	*onnxq.Model
	path       string
	ir         int64           // IR version of the model as it was given
	calibrated spec.Algorithm  // what found its codes by data, as its record says; "": none
	folded     *restyle.Report // nil if it had no quantized weights
}

const decoding = "decoding the weights" // a stage

// calibrated returns the algorithm with which a conversion of onnxquant found codes by data, or "". Blocks
// that the data hardly reach may be used to make up for the errors of others.
func calibrated(record []provenance.Step) spec.Algorithm {
	for _, s := range record {
		words := strings.Fields(s.Options)
		if !slices.Contains(words, "--calib") {
			continue
		}
		if i := slices.Index(words, "--algorithm"); i >= 0 && i+1 < len(words) {
			return spec.Algorithm(words[i+1])
		}
		return spec.Best
	}
	return ""
}

// dequantized returns a model with float weights: the model itself if it has no quantized
// ones, else a new model in a new folder.
func (v *verifier) dequantized(path, folder string) (*decoded, error) {
	m, err := onnxq.Open(path)
	if err != nil {
		return nil, err
	}
	given := access.Graph(m).File.Proto
	d := &decoded{Model: m, path: path, ir: given.GetIrVersion(), calibrated: calibrated(provenance.Of(given))}
	if len(intops.Weights(access.Graph(m))) == 0 {
		return d, nil
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		m.Close()
		return nil, err
	}
	d.path = filepath.Join(folder, "model.onnx")
	d.folded, err = restyle.DequantizeModel(v.ctx, m, d.path, restyle.Options{NoVerify: true, Progress: v.stage(decoding)})
	m.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: cannot dequantize its weights: %w", path, err)
	}
	for i := range d.folded.Weights { // nothing holds the first model when the second is opened
		d.folded.Weights[i].Weight = d.folded.Weights[i].Detached()
	}
	d.Model = nil
	if d.Model, err = onnxq.Open(d.path); err != nil {
		return nil, err
	}
	return d, nil
}

// match compares the structures and the weights. It returns the paths of the models with float
// weights.
func (v *verifier) match(folder string) (float, quantized string, err error) {
	if _, err := os.Stat(v.in); err != nil {
		return "", "", fmt.Errorf("%s: %w", v.in, errors.Unwrap(err))
	}
	v.stage(decoding)
	// The quantized model first: it takes the memory of two while it is dequantized.
	b, err := v.dequantized(v.out, filepath.Join(folder, "out"))
	if err != nil {
		return "", "", err
	}
	defer b.Close()
	v.report.Limits = v.opts.limits(b.calibrated)
	a, err := v.dequantized(v.in, filepath.Join(folder, "in"))
	if err != nil {
		return "", "", err
	}
	defer a.Close()
	v.report.Swapped = a.folded != nil && b.folded == nil
	m, err := v.matched(a, b)
	if err != nil {
		return "", "", err
	}
	if b.ir < a.ir && !slices.ContainsFunc(m.Problems, func(p string) bool { return strings.HasPrefix(p, "IR version") }) {
		m.Problems = append(m.Problems, fmt.Sprintf("IR version %d -> %d", a.ir, b.ir)) // dequantizing raised it
	}
	m.Problems = append(m.Problems, otherSteps(a.folded, b.folded)...)
	v.report.Structure = Structure{m.Nodes, m.Problems, m.Notes, m.Activations, m.Half}
	v.report.Weights, v.report.Same, v.report.Rounded = m.Weights, m.Same, m.Rounded
	return a.path, b.path, nil
}

// otherSteps lists the activations that both models have as codes, with another scale in each. Half
// rounds scales by less than a hundredth.
func otherSteps(was, is *restyle.Report) (problems []string) {
	if was == nil || is == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(was.Steps)) {
		from := was.Steps[name]
		if to, coded := is.Steps[name]; coded && math.Abs(to-from) > 0.01*from {
			problems = append(problems, fmt.Sprintf("the codes of %s have the scale %.4g, had %.4g", msg.Quote(name), to, from))
		}
	}
	return problems
}

// matched compares the float models, in detail if that is asked for. What they were decoded from is
// opened again where it is needed.
func (v *verifier) matched(a, b *decoded) (*compare.Match, error) {
	progress := v.stage("comparing the weights")
	from, to := compare.Decoded{Model: a.Model, Folded: a.folded}, compare.Decoded{Model: b.Model, Folded: b.folded}
	detail := v.opts.Detail && b.folded != nil
	for _, side := range []struct {
		*compare.Decoded
		path string
		want bool
	}{{&from, v.in, quantizesFloats(a.folded) && quantizesFloats(b.folded)}, {&to, v.out, detail || quantizesFloats(b.folded)}} {
		if !side.want {
			continue
		}
		m, err := onnxq.Open(side.path)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		side.Coded = m
	}
	return compare.MatchDecoded(v.ctx, from, to, detail, progress)
}

// quantizesFloats reports whether codes of a weight are made of floats by the model itself.
func quantizesFloats(r *restyle.Report) bool {
	return r != nil && slices.ContainsFunc(r.Weights, func(w restyle.Weight) bool { return strings.HasPrefix(w.Form, "QuantizeLinear") })
}

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
			err = fmt.Errorf("%s: no output has a finite element", runner.Name())
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
