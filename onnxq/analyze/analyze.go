package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/convert"
	"onnxquant/internal/target"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Options say which candidates to try, and the bounds.
type Options struct {
	// Options select weights and forms; Precision must be nil. Errors of algorithms gptq and best are
	// estimated with mse: their gain over mse is about the same in all formats, but slow to compute.
	// Calibration does not run. Sizes count what it adds to the record, and Provenance.
	onnxq.Options
	Candidates []spec.Candidate // by default those of Defaults, of 8 bits for convolutions; Float is always added
	MaxError   float64          // bound of the error; 0: none, or 0.1 if MaxSize is 0 too
	MaxSize    int64            // bound of the output's size in bytes; 0: none

	// Output is the name of the file that will be written, if it is known. With external data, sizes
	// depend on it.
	Output string

	// Damage, if not nil, measures what weights do to the outputs of the model. The sum of
	// their damages then takes the place of the error of a model. Without MaxSize nothing is
	// recommended.
	Damage Damage

	// Measured, if not empty, are the candidates whose Damage is measured. That of others follows from their errors.
	Measured []spec.Candidate
}

const defaultMaxError = 0.1

// Model measures the candidates on the weights of a model and recommends one for each. With
// MaxError it finds the smallest output within this error; with only MaxSize, the least error
// within this size. With both, an output that exceeds MaxSize is an error. Each candidate
// takes one pass over the weights, in bounded memory.
func Model(ctx context.Context, m *onnxq.Model, opts Options) (*Analysis, error) {
	a, err := measured(ctx, m, opts)
	if err != nil {
		return nil, err
	}
	if a.MaxError > 0 || a.MaxSize > 0 {
		if err := a.recommend(ctx); err != nil {
			return nil, err
		}
	}
	a.countRecord()
	return &a.Analysis, nil
}

// measured measures the candidates, and recommends nothing.
func measured(ctx context.Context, m *onnxq.Model, opts Options) (*analyzer, error) {
	if err := m.Ready(ctx); err != nil {
		return nil, err
	}
	a, err := newAnalyzer(m, opts)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(a.Candidates); i++ { // try adds some
		if err := a.try(ctx, a.Candidates[i]); err != nil {
			return nil, err
		}
	}
	if len(a.Weights) == 0 {
		return nil, fmt.Errorf("nothing can be quantized: %s", a.nothing)
	}
	if !a.narrow && !a.opts.Smallest {
		a.dropDecoded()
	}
	a.tie()
	if a.damage != nil {
		if err := a.measureDamages(ctx); err != nil {
			return nil, err
		}
		a.estimate()
	}
	a.total()
	a.frontier()
	return a, nil
}

// analyzer is the state of Model.
type analyzer struct {
	Analysis
	model  *onnxq.Model
	plan   func(onnxq.Options) (*convert.Plan, error) // of onnxq.Model.Planner
	opts   onnxq.Options                              // of the plans that are measured: without a record
	final  onnxq.Options                              // of the conversion
	output string
	record int64 // bytes of the record that the conversion makes

	damage Damage
	sparse []spec.Candidate // Options.Measured
	narrow bool             // convolutions may have fewer than 8 bits
	beyond int64            // bytes that the contents of any mix add, see Beyond
	slack  int64            // bytes by which sizes of mixes may be estimated too large
	index  map[string]int   // name → index in Weights

	read map[string][]int // QMoE node, by its output → the weights that it reads
	unit []int            // by weight: the first of the weights that it is tied to

	only    map[spec.Candidate]map[string]bool // names of weights, for candidates that are tried on some alone
	done    int64                              // bytes measured
	nothing string                             // why the last candidate suits no weight
}

func newAnalyzer(m *onnxq.Model, opts Options) (*analyzer, error) {
	switch {
	case opts.Precision != nil:
		return nil, errors.New("an analysis makes a precision_info: leave Precision nil")
	case !(opts.MaxError >= 0) || math.IsInf(opts.MaxError, 1):
		return nil, fmt.Errorf("max error %v: want 0 or more", opts.MaxError)
	case opts.MaxSize < 0:
		return nil, fmt.Errorf("max size %d is negative", opts.MaxSize)
	case opts.Damage != nil && opts.MaxError > 0:
		return nil, errors.New("with Damage, set MaxSize and leave MaxError 0")
	}
	a := &analyzer{
		model: m, plan: m.Planner(), opts: opts.Options, output: opts.Output, damage: opts.Damage, sparse: opts.Measured,
		index: map[string]int{}, read: map[string][]int{}, only: map[spec.Candidate]map[string]bool{},
	}
	a.opts.Strict, a.opts.MinCoverage, a.opts.Format, a.opts.Bits, a.opts.ZeroPoint = false, 0, "", 0, false
	a.opts.Calibration, a.opts.Resume, a.opts.Tune, a.opts.Provenance = nil, false, 0, nil
	if opts.Algorithm.Calibrated() {
		a.opts.Algorithm = spec.MSE
	}
	a.final = a.opts
	a.final.Provenance = opts.Provenance
	if opts.Calibration != nil || !opts.Algorithm.NeedsData() {
		a.final.Calibration, a.final.Algorithm = opts.Calibration, opts.Algorithm
	}
	a.MaxError, a.MaxSize = opts.MaxError, opts.MaxSize
	if a.MaxError == 0 && a.MaxSize == 0 && a.damage == nil {
		a.MaxError = defaultMaxError
	}
	a.Candidates = []spec.Candidate{{Format: spec.Float}}
	a.narrow = len(opts.Candidates) > 0
	if !a.narrow {
		opts.Candidates = opts.Defaults()
	}
	for _, c := range opts.Candidates {
		if err := c.Check(); err != nil {
			return nil, err
		}
		if !slices.Contains(a.Candidates, c) {
			a.Candidates = append(a.Candidates, c)
		}
	}
	if len(convert.TensorNames(m.Graph())) == 0 {
		return nil, errors.New("the model has no float tensor")
	}
	return a, nil
}

// Defaults returns the candidates that are tried if none are named. Where the target does not take
// the type of scales, they are as usual.
func (o Options) Defaults() (list []spec.Candidate) {
	all := spec.DefaultCandidates
	switch {
	case o.Damage != nil && o.Algorithm.Calibrated():
		all = spec.CalibratedCandidates
	case o.Damage != nil:
		all = slices.Concat(all, spec.DataCandidates)
	}
	for _, c := range all {
		if o.Algorithm.Calibrated() && !o.Algorithm.Serves(c.Format) {
			continue
		}
		if c.ScaleType.Check(c.Format, c.ZeroPoint, o.Style, o.Algorithm) != nil || target.Of(cmp.Or(o.Target, spec.Portable)).CheckScaleType(c.ScaleType) != nil {
			c.ScaleType = ""
		}
		if !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// planFor makes the plan with one candidate for all weights.
func (a *analyzer) planFor(c spec.Candidate) (*convert.Plan, error) {
	opts, err := a.optionsFor(c)
	if err != nil {
		return nil, err
	}
	return a.plan(opts)
}

// optionsFor returns the options with one candidate for all weights.
func (a *analyzer) optionsFor(c spec.Candidate) (onnxq.Options, error) {
	opts := a.opts
	var err error
	opts.Precision, err = rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: c.Override()})
	return opts, err
}
