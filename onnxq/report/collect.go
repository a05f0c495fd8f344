package report

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onnxquant/internal/provenance"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/bench"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/inspect"
	"onnxquant/onnxq/verify"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Options say what to collect. The zero value compares the models with the defaults of package verify,
// and tries the usual formats on the quantized weights.
type Options struct {
	Tool    string // program and version, for the reader
	Command string // that asked for the report, for the reader

	Verify     verify.Options   // Progress is called for all stages
	Candidates []spec.Candidate // formats to try; default spec.DefaultCandidates
	NoTrial    bool             // try none
	Target     spec.Target      // runtime for the candidates; default Portable
	Threads    int              // for trying them; default: the number of CPUs
	Memory     int64            // likewise; default 64 MiB

	// Bench measures the speed of the models, one thread each, on the inputs of Verify. It fails without ONNX
	// Runtime.
	Bench bool

	// Plan is the plan of the conversion that made the first model, if it is known: it tells why
	// tensors stayed float.
	Plan *onnxq.Plan
}

// Models compares the float model at in with quantized models, of which the first is described
// in detail. Differences are not an error; they are in the report.
func Models(ctx context.Context, in string, outs []string, opts Options) (*Report, error) {
	c := newCollector(ctx, opts)
	var verified []*verify.Report
	for i, out := range outs { // before IN is opened: this takes the memory of two models
		v, err := c.compare(in, out, i == 0)
		if err != nil {
			return nil, err
		}
		verified = append(verified, v)
	}
	m, err := onnxq.Open(in)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	found := inspect.Model(m, onnxq.Options{})
	if c.report.In, err = c.file(in, found); err != nil {
		return nil, err
	}
	analysis, err := c.try(m, names(verified))
	if err != nil {
		return nil, err
	}
	c.errors(verified, analysis)
	if len(verified) > 0 {
		first := verified[0]
		c.report.Outputs = &first.Execution
		c.report.Random = len(c.opts.Verify.Inputs) == 0
		c.report.Verdict, c.report.Judgement = first.Verdict, judge(first, opts.Verify)
		c.report.Notes = append(c.report.Notes, first.Structure.Notes...)
		c.weights(first, analysis)
	}
	if analysis != nil {
		c.frontier(analysis)
		if err := c.compareFormats(in, names(verified)); err != nil {
			return nil, err
		}
		c.suggest(analysis)
	}
	c.kept(cmp.Or(c.opts.Plan, found.Plan))
	if opts.Bench {
		if err := c.bench(append([]string{in}, outs...)); err != nil {
			return nil, fmt.Errorf("the speed cannot be measured: %w", err)
		}
	}
	return c.report, nil
}

// bench measures the speed of the models.
func (c *collector) bench(paths []string) error {
	v := c.opts.Verify
	r, err := bench.Models(c.ctx, paths, bench.Options{ORTLibrary: v.ORTLibrary, Threads: 1, Inputs: v.Inputs, Dims: v.Dims, Progress: v.Progress})
	if err == nil {
		c.report.Bench = &Bench{*r}
	}
	return err
}

// collector is the state of Models.
type collector struct {
	ctx    context.Context
	opts   Options
	report *Report
}

func newCollector(ctx context.Context, opts Options) *collector {
	return &collector{ctx, opts, &Report{
		Tool: opts.Tool, Command: opts.Command,
		Outs: []File{}, Weights: []Weight{}, Sizes: Sizes{Candidates: []SizePoint{}, Frontier: []SizePoint{}}, Hazards: []Hazard{}, Kept: []Kept{}, Notes: []string{},
	}}
}

func (c *collector) stage(text string) {
	if c.opts.Verify.Progress != nil {
		c.opts.Verify.Progress(text, 0, 0)
	}
}

// compare verifies a quantized model and describes its file; the first is also inspected.
func (c *collector) compare(in, out string, first bool) (*verify.Report, error) {
	opts := c.opts.Verify
	opts.Detail, opts.Trace = first, opts.Trace && first
	v, err := verify.Models(c.ctx, in, out, opts)
	if err != nil {
		return nil, err
	}
	if first {
		c.report.Verification, c.report.Trace = v, v.Trace
	}
	v = withoutRepeats(v)
	m, err := onnxq.Open(out)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	found := inspect.Model(m, onnxq.Options{})
	f, err := c.file(out, found)
	if err != nil {
		return nil, err
	}
	f.Verdict, f.Outputs = v.Verdict, v.Execution.Final()
	f.OutputError = outputError(f.Outputs)
	c.report.Outs = append(c.report.Outs, f)
	if first {
		c.report.Hazards = found.Hazards
	}
	return v, nil
}

// withoutRepeats returns the comparison with each weight once. A weight that is read behind several
// Identity nodes was compared for each.
func withoutRepeats(v *verify.Report) *verify.Report {
	type key struct {
		name, form, codes string
		block, bytes      int64
		mse               float64
	}
	seen := map[key]bool{}
	once := *v
	once.Weights = nil
	for _, w := range v.Weights {
		k := key{w.Name, w.Form, w.CodeType, w.Block, w.OutBytes, w.MSE}
		if !seen[k] {
			seen[k] = true
			once.Weights = append(once.Weights, w)
		}
	}
	return &once
}

// names lists the weights that any of the models quantizes or changes, each once.
func names(verified []*verify.Report) []string {
	var list []string
	for _, v := range verified {
		for _, w := range v.Weights {
			list = append(list, w.Name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// try analyzes the named weights; without names, the usual weights. It returns nil if there is nothing
// to try.
func (c *collector) try(m *onnxq.Model, names []string) (*analyze.Analysis, error) {
	if c.opts.NoTrial {
		c.report.Sizes.Skipped = "no other formats were tried"
		return nil, nil
	}
	c.stage("trying other formats")
	a, err := analyze.Model(c.ctx, m, analyze.Options{Candidates: c.opts.Candidates, Options: c.quantizing(names)})
	switch {
	case c.ctx.Err() != nil:
		return nil, context.Cause(c.ctx)
	case err != nil:
		c.report.Sizes.Skipped = err.Error()
		return nil, nil
	}
	return a, nil
}

// quantizing returns options that quantize the named weights; without names, the usual weights.
func (c *collector) quantizing(names []string) onnxq.Options {
	opts := onnxq.Options{Target: c.opts.Target, Threads: c.opts.Threads, Memory: c.opts.Memory}
	for _, name := range names {
		opts.Ops = []string{"all"}
		opts.Include = append(opts.Include, rules.PatternOf(name))
	}
	return opts
}

// errorOf returns the error of a weight, from its SQNR.
func errorOf(sqnr float64) float64 {
	if sqnr >= exact {
		return 0
	}
	return math.Pow(10, -sqnr/20)
}

const exact = 999 // the SQNR of a weight without errors

// errors sets the errors of the models.
func (c *collector) errors(verified []*verify.Report, a *analyze.Analysis) {
	counted := names(verified)
	if a != nil {
		for _, w := range a.Weights {
			counted = append(counted, w.Name)
		}
		slices.Sort(counted)
		counted = slices.Compact(counted)
	}
	c.report.Sizes.Count = len(counted)
	for i, v := range verified {
		noise := 0.0
		for _, w := range v.Weights {
			noise += math.Pow(errorOf(w.SQNR), 2)
		}
		c.report.Outs[i].Error = math.Sqrt(noise / float64(max(len(counted), 1)))
	}
}

// weights describes the weights of the first model.
func (c *collector) weights(v *verify.Report, a *analyze.Analysis) {
	choices := map[string]*analyze.Weight{}
	if a != nil {
		for i := range a.Weights {
			choices[a.Weights[i].Name] = &a.Weights[i]
		}
	}
	planned := map[string]*onnxq.TensorPlan{}
	if c.opts.Plan != nil {
		for i := range c.opts.Plan.Tensors {
			planned[c.opts.Plan.Tensors[i].Name] = &c.opts.Plan.Tensors[i]
		}
	}
	for _, w := range v.Weights {
		made := Weight{
			Name: w.Name, Node: w.Node, DType: w.DType, Shape: w.Shape, Format: formatOf(&w, planned[w.Name]), Form: w.Form,
			FloatBytes: w.Bytes, Bytes: w.OutBytes,
			Error: errorOf(w.SQNR), SQNR: w.SQNR, MaxError: w.MaxError, Broken: w.Broken, Worst: w.Worst, Detail: w.Detail, Choices: []SizePoint{},
		}
		made.Cost = made.Error * float64(made.Bytes)
		if tried := choices[w.Name]; tried != nil {
			made.Choices = pointsOf(tried.Choices)
		}
		c.report.Weights = append(c.report.Weights, made)
	}
	sortWeights(c.report.Weights)
}

func sortWeights(list []Weight) {
	slices.SortStableFunc(list, func(a, b Weight) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Name, b.Name))
	})
}

func pointsOf(choices []analyze.Choice) (points []SizePoint) {
	for _, choice := range choices {
		points = append(points, SizePoint{choice.Candidate.String(), choice.Bytes, choice.Error})
	}
	return points
}

// formatOf names the format and the blocks of a weight as spec.Candidate does: the planned format if
// it is known, else the type of the codes.
func formatOf(w *compare.WeightMatch, planned *onnxq.TensorPlan) string {
	if w.CodeType == "" {
		return w.Form
	}
	format := strings.ToLower(w.CodeType)
	if planned != nil && planned.Format != "" {
		format = string(planned.Format)
	}
	switch w.Block {
	case spec.PerChannel:
		return format + ":channel"
	case spec.PerTensor:
		return format + ":tensor"
	}
	return fmt.Sprintf("%s:%d", format, w.Block)
}

// file describes a model.
func (c *collector) file(path string, found *inspect.Inspection) (File, error) {
	c.stage("hashing " + path)
	f := File{Path: path, Bytes: found.Bytes, IR: found.IR, Opsets: found.Opsets}
	for _, s := range found.Provenance {
		if s.Command == "convert" {
			f.Flags = s.Options
			f.Calibrated = f.Calibrated || provenance.Calibrated(s)
		}
	}
	paths := []string{path}
	for _, e := range found.External {
		paths = append(paths, filepath.Join(filepath.Dir(path), filepath.FromSlash(e.Name)))
	}
	for _, p := range paths {
		hex, err := c.hash(p)
		if err != nil {
			return f, err
		}
		f.SHA256 = append(f.SHA256, Digest{filepath.Base(p), hex})
	}
	return f, nil
}

func (c *collector) hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, stoppable{c.ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// stoppable is a reader that fails when its context ends.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s stoppable) Read(b []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.r.Read(b)
}

// kept lists what stayed float, with the reasons of a plan.
func (c *collector) kept(p *onnxq.Plan) {
	if p == nil {
		return
	}
	quantized := map[string]bool{}
	for _, w := range c.report.Weights {
		quantized[w.Name] = true
	}
	at := map[string]int{}
	for _, t := range p.Tensors {
		reason := t.Reason
		switch {
		case quantized[t.Name]:
			continue
		case t.Decision == onnxq.Quantize && len(c.report.Outs) == 0:
			continue
		case t.Decision == onnxq.Quantize:
			reason = "nothing is in the way: by default it would be quantized"
		}
		if _, ok := at[reason]; !ok {
			at[reason] = len(c.report.Kept)
			c.report.Kept = append(c.report.Kept, Kept{Reason: reason})
		}
		k := &c.report.Kept[at[reason]]
		k.Bytes += t.Bytes
		k.Names = append(k.Names, t.Name)
	}
	slices.SortStableFunc(c.report.Kept, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Reason, b.Reason))
	})
	c.report.Notes = append(c.report.Notes, p.Warnings...)
}
