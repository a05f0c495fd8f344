// Package verify compares a float model with a quantized model made from it, by any
// tool. It reports
//
//   - whether anything but weights changed,
//   - the error of each weight,
//   - the error of each output, when both models run on the same inputs.
//
// [Models] gets the paths of two models, which it only reads, and returns a [Report], which the caller
// owns. It first dequantizes the weights to a model in a temporary folder, which takes as much disk
// space as the float model. The models run in pure Go if it supports their operators, else in ONNX
// Runtime if it is installed.
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

	"onnxquant/internal/intops"
	"onnxquant/internal/kvcache"
	"onnxquant/internal/msg"
	"onnxquant/internal/provenance"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/work"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/inspect"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// Models compares the float model at in with the quantized model at out. Differences
// are not an error; they are in the report.
func Models(ctx context.Context, in, out string, opts Options) (*Report, error) {
	if err := work.CheckContext(ctx); err != nil {
		return nil, err
	}
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

type verifier struct {
	ctx     context.Context
	in, out string // the models' paths
	opts    Options
	report  *Report

	optimized bool        // ONNX Runtime optimized out, and not in
	corrected bool        // data corrected biases of out, by its record
	floats    bool        // float weights of out may be decoded codes, by its record
	second    *ort.Runner // that ran OUT itself beside another engine; nil: none did
	lacked    error       // why ONNX Runtime does not run OUT, if it was looked for
	record    []spec.Step // of OUT
	ops       []string    // operators whose weights are codes in OUT, of those that a conversion quantizes
	elsewhere bool        // OUT is meant for another runtime than ONNX Runtime
	runs      int         // of each model, for the progress
	fixes     []string    // sizes of inputs that only OUT fixes, such as ids:1=128
	stops     string      // why OUT does not run though IN does, if no outputs were compared

	states []string // outputs that are inputs of the next run
	least  float64  // absolute value below which outputs are about zero
	coded  []Reach  // activations that only OUT has as codes
	folded string   // IN folded and balanced as OUT is; "" if OUT is neither

	hazard *inspect.Hazard // by which ONNX Runtime computes OUT itself wrongly; nil: none is known
}

// stage announces the next stage. The caller reports its progress to the result.
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
	path      string
	ir        int64 // IR version of the model before decoding
	codes     origin
	floats    bool     // it was dequantized, by its record
	optimized bool     // ONNX Runtime optimized and saved it
	elsewhere bool     // it is meant for another runtime than ONNX Runtime
	caches    []string // inputs for key-value caches of int8
	record    []spec.Step
	folded    *restyle.Report // nil if nothing was decoded
}

const decoding = "decoding the weights" // a stage

// origin says how the codes of a model were found.
type origin struct {
	fitted bool // they compensate each other's errors, so that they may be farther from the weights
	data   bool // by calibration data
	scaled bool // algorithm awq scaled channels
	biases bool // data corrected biases
}

// originOf reads the origin from the record of conversions. Algorithm best fits codes without data, too.
func originOf(record []spec.Step) (o origin) {
	for _, s := range record {
		by := func(a spec.Algorithm) bool {
			if len(s.Codes) == 0 { // older records have the flags alone
				return strings.Contains(s.Options+" ", "--algorithm "+string(a)+" ")
			}
			return slices.ContainsFunc(s.Codes, func(c spec.StepCodes) bool { return c.Algorithm == a })
		}
		data := provenance.Calibrated(s)
		o.data, o.fitted, o.scaled = o.data || data, o.fitted || data || by(spec.Best), o.scaled || by(spec.AWQ)
		o.biases = o.biases || s.Biases > 0
	}
	return o
}

// optimizers is the domain of operators on blocks of channels, which only ONNX Runtime's optimizer makes. A
// model that it saved imports all domains that it knows.
const optimizers = "com.microsoft.nchwc"

// dequantized returns a model with float weights: the model itself if it has no quantized weights,
// else a new model in a new folder. If other lost its codes of activations, this model loses them too,
// so that the two can be compared.
func (v *verifier) dequantized(path, folder string, other *decoded) (*decoded, error) {
	m, err := onnxq.Open(path)
	if err != nil {
		return nil, err
	}
	if other == nil {
		if v.report.Written, err = compareWritten(v.ctx, m); err != nil {
			m.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	given := m.Graph().File.Proto
	d := &decoded{Model: m, path: path, ir: given.GetIrVersion(), codes: originOf(provenance.Of(given)), record: provenance.Of(given), elsewhere: elsewhere(given)}
	d.floats = slices.ContainsFunc(provenance.Of(given), func(s spec.Step) bool { return s.Command == "dequantize" })
	for _, o := range given.OpsetImport {
		d.optimized = d.optimized || o.GetDomain() == optimizers
	}
	d.caches = kvcache.Inputs(m.Graph())
	if len(intops.Weights(m.Graph())) == 0 && len(d.caches) == 0 {
		f, err := intops.Float(m.Graph())
		if err != nil || f.Graph == m.Graph() || other == nil || other.folded == nil {
			return d, nil
		}
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
func (v *verifier) match(folder string) (in, out string, err error) {
	if _, err := os.Stat(v.in); err != nil {
		return "", "", fmt.Errorf("%s: %w", v.in, errors.Unwrap(err))
	}
	v.stage(decoding)
	// The quantized model first: it takes the memory of two while it is dequantized.
	b, err := v.dequantized(v.out, filepath.Join(folder, "out"), nil)
	if err != nil {
		return "", "", err
	}
	defer b.Close()
	v.report.Limits = v.opts.limits(v.report.Written.State, b.codes)
	a, err := v.dequantized(v.in, filepath.Join(folder, "in"), b)
	if err != nil {
		return "", "", err
	}
	defer a.Close()
	var outputs []string
	for _, o := range a.Graph().File.Proto.GetGraph().GetOutput() {
		outputs = append(outputs, o.GetName())
	}
	if err := v.opts.checkLogits(outputs); err != nil {
		return "", "", err
	}
	v.optimized = b.optimized && !a.optimized
	v.floats, v.corrected = b.floats, b.codes.biases
	v.elsewhere, v.record, v.ops = b.elsewhere, b.record, codedOps(b.folded)
	v.report.Swapped, v.report.Execution.Decoded = a.folded != nil && b.folded == nil, b.folded != nil
	m, err := v.matched(a, b)
	if err != nil {
		return "", "", err
	}
	if b.ir < a.ir && !slices.ContainsFunc(m.Problems, func(p string) bool { return strings.HasPrefix(p, "IR version") }) {
		m.Problems = append(m.Problems, fmt.Sprintf("IR version %d -> %d", a.ir, b.ir)) // dequantizing raised it
	}
	m.Problems = append(m.Problems, otherSteps(a.folded, b.folded)...)
	caches := slices.DeleteFunc(b.caches, func(name string) bool { return slices.Contains(a.caches, name) })
	v.report.Structure = Structure{
		Folded: m.Folded, Balanced: m.Balanced, Nodes: m.Nodes, Problems: m.Problems, Notes: m.Notes, Unread: len(m.Problems) > 0 && intops.OfFloats(b.Graph()),
		Activations: m.Activations, Caches: caches, FloatType: m.FloatType,
	}
	float := a.Model
	if v.opts.Engine != None && m.Folded+m.Balanced > 0 {
		if float, err = v.writeFolded(a.Model, b.Model, m, folder); err != nil {
			return "", "", err
		}
	}
	if v.opts.Engine != None && len(m.Activations) > 0 {
		v.coded = reachOf(float.Graph(), b.Graph())
	}
	v.report.Weights, v.report.Same, v.report.Rounded = m.Weights, m.Same, m.Rounded
	return a.path, b.path, nil
}

// otherSteps lists the activations that both models have as codes, with another scale or zero point
// in each. Half rounds scales by less than a hundredth.
func otherSteps(was, is *restyle.Report) (problems []string) {
	if was == nil || is == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(was.Ranges)) {
		from := was.Ranges[name]
		if to, coded := is.Ranges[name]; coded && math.Abs(to.Lo/to.Step-from.Lo/from.Step) > 0.5 {
			problems = append(problems, fmt.Sprintf("the codes of %s have another zero point", msg.Quote(name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Steps)) {
		from := was.Steps[name]
		if to, coded := is.Steps[name]; coded && math.Abs(to-from) > 0.01*from {
			problems = append(problems, fmt.Sprintf("the codes of %s have the scale %.4g, had %.4g", msg.Quote(name), to, from))
		}
	}
	return problems
}

// matched compares the float models, in detail if that is asked for. It opens the original models
// again where their codes are needed.
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

// quantizesFloats reports whether the model itself makes codes of a weight from floats.
func quantizesFloats(r *restyle.Report) bool {
	return r != nil && slices.ContainsFunc(r.Weights, func(w restyle.Weight) bool { return strings.HasPrefix(w.Form, "QuantizeLinear") })
}
