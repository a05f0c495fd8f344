package analyze

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// Options say which candidates to try, and the bounds.
type Options struct {
	// Which weights and forms; Precision must be nil. Algorithms gptq and best are weighed by mse:
	// what these gain on it is much the same in all formats, but takes long to find.
	onnxq.Options
	Candidates []spec.Candidate // default as Defaults returns them, for convolutions those of 8 bits; Float is always one of them
	MaxError   float64          // bound of the error; 0: none, or 0.1 if MaxSize is 0 too
	MaxSize    int64            // bound of the output's size in bytes; 0: none

	// Output is the name of the file that will be written, if it is known. With external data, sizes
	// depend on it.
	Output string

	// Damage, if not nil, measures what weights do to the outputs of the model. The sum of
	// their damages then takes the place of the error of a model. Without MaxSize nothing is
	// recommended.
	Damage Damage
}

const defaultMaxError = 0.1

// Model measures the candidates on the weights of a model and recommends one for each. With
// MaxError it finds the smallest output within this error; with only MaxSize, the least error
// within this size. With both, an output that exceeds MaxSize is an error. Each candidate
// takes one pass over the weights, in bounded memory.
func Model(ctx context.Context, m *onnxq.Model, opts Options) (*Analysis, error) {
	if err := access.Ready(ctx, m); err != nil {
		return nil, err
	}
	a, err := newAnalyzer(m, opts)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(a.Candidates); i++ { // try adds some
		if err := a.try(ctx, i, a.Candidates[i]); err != nil {
			return nil, err
		}
	}
	if len(a.Weights) == 0 {
		return nil, fmt.Errorf("nothing can be quantized: %s", a.nothing)
	}
	if !a.narrow {
		a.dropDecoded()
	}
	if a.damage != nil {
		if err := a.measureDamages(ctx); err != nil {
			return nil, err
		}
		a.estimate()
	}
	a.total()
	a.frontier()
	if a.MaxError > 0 || a.MaxSize > 0 {
		if err := a.recommend(ctx); err != nil {
			return nil, err
		}
	}
	return &a.Analysis, nil
}

// analyzer is the state of Model.
type analyzer struct {
	Analysis
	model  *onnxq.Model
	plan   func(options any) (*convert.Plan, error) // see access.Planner
	opts   onnxq.Options
	output string

	damage Damage
	narrow bool           // convolutions may have fewer than 8 bits
	beyond int64          // bytes that the contents of any mix add, see Beyond
	slack  int64          // bytes by which sizes of mixes may be estimated too large
	index  map[string]int // name → index in Weights

	only    map[spec.Candidate]map[string]bool // names of weights, for candidates that are tried on some alone
	done    int64                              // bytes measured
	nothing string                             // why the last candidate suits no weight
}

func newAnalyzer(m *onnxq.Model, opts Options) (*analyzer, error) {
	switch {
	case opts.Precision != nil:
		return nil, errors.New("an analysis makes a precision_info and takes none")
	case !(opts.MaxError >= 0) || math.IsInf(opts.MaxError, 1):
		return nil, fmt.Errorf("max error %v: want 0 or more", opts.MaxError)
	case opts.MaxSize < 0:
		return nil, fmt.Errorf("max size %d is negative", opts.MaxSize)
	case opts.Damage != nil && opts.MaxError > 0:
		return nil, errors.New("the least damage takes a bound of the size, and none of the error")
	}
	a := &analyzer{
		model: m, plan: access.Planner(m), opts: opts.Options, output: opts.Output, damage: opts.Damage,
		index: map[string]int{}, only: map[spec.Candidate]map[string]bool{},
	}
	a.opts.Strict, a.opts.MinCoverage, a.opts.Format, a.opts.Bits, a.opts.ZeroPoint = false, 0, "", 0, false
	a.opts.Calibration, a.opts.Resume = nil, false
	if opts.Algorithm.Calibrated() {
		a.opts.Algorithm = spec.LeastAngle
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
	if len(convert.TensorNames(access.Graph(m))) == 0 {
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
		if o.Algorithm == spec.AWQ && c.Format.Traits().Family != spec.Integer {
			continue // it is for integers alone
		}
		if c.ScaleType.Check(c.Format, c.ZeroPoint, o.Style, o.Algorithm, o.Target) != nil {
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
	opts, err := a.with(c)
	if err != nil {
		return nil, err
	}
	return a.plan(opts)
}

// with returns the options with one candidate for all weights.
func (a *analyzer) with(c spec.Candidate) (onnxq.Options, error) {
	opts := a.opts
	var err error
	opts.Precision, err = rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: c.Override()})
	return opts, err
}
