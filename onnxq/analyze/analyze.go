package analyze

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/access"
	"onnxquant/internal/convert"
	"onnxquant/internal/graph"
	"onnxquant/internal/knapsack"
	"onnxquant/internal/msg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/rewrite"
	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
	"onnxquant/quality"
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

// Damage measures what quantizing one weight alone does to the outputs of a model: a number
// that adds up over weights. Package sensitivity implements it.
type Damage interface {
	// Expect is told how many measurements there will be.
	Expect(n int)

	// Of returns the damage of each of some weights, quantized as opts say; NaN if it cannot
	// be measured.
	Of(ctx context.Context, m *onnxq.Model, opts onnxq.Options, weights []string) ([]float64, error)

	// Together returns the damage of all weights at once, measured on other data where there are more.
	Together(ctx context.Context, m *onnxq.Model, opts onnxq.Options) (float64, error)
}

const defaultMaxError = 0.1

// Analysis has the error and size of every candidate for every weight, and the recommended
// candidate of each.
//
// The error of a weight is its root mean square error divided by its root mean square:
// 10^(-SQNR/20). The error of a model is the root mean square of the errors of its weights.
// All weights count the same, whatever their size, because noise in each matrix adds to the
// noise of the activations alike. It measures weights, not the outputs of the model.
type Analysis struct {
	Candidates []spec.Candidate `json:"candidates"`
	Weights    []Weight         `json:"weights"`
	Totals     []Total          `json:"totals"`   // of each candidate, used for all weights
	Frontier   []Point          `json:"frontier"` // of mixes, the smallest first: none of the others has both a smaller size and a smaller error

	DamageFrontier []DamagePoint `json:"damage_frontier,omitempty"` // the same by damage, if that was measured

	MaxError float64 `json:"max_error,omitempty"` // the bounds
	MaxSize  int64   `json:"max_size,omitempty"`

	FloatBytes int64   `json:"float_bytes"` // size of the output with all weights in float
	OutBytes   int64   `json:"out_bytes"`   // exact size of the output as recommended
	Error      float64 `json:"error"`       // error of the model as recommended

	// Damage is the sum of the weights' damages as recommended, if they were measured.
	Damage *float64 `json:"damage,omitempty"`

	// Gap bounds how far the recommendation is from the best mix of these candidates, as a
	// share of the recommendation: in bytes, or in error if only the size is bounded.
	Gap float64 `json:"gap"`

	Precision *rules.Precision `json:"precision_info"` // the recommendation
}

// Weight is the analysis of one weight.
type Weight struct {
	Name         string         `json:"name"`
	DType        string         `json:"dtype"`
	Shape        []int64        `json:"shape"`
	Bytes        int64          `json:"bytes"`
	Distribution Distribution   `json:"distribution"`
	Choices      []Choice       `json:"choices"`     // the candidates that are possible
	Recommended  spec.Candidate `json:"recommended"` // one of them
}

// Choice is a candidate applied to a weight.
type Choice struct {
	Candidate spec.Candidate `json:"candidate"`
	Bytes     int64          `json:"bytes"`
	Error     float64        `json:"error"`
	Block     int            `json:"block,omitempty"` // block size it gets, if not the candidate's

	// Damage is what this choice alone does to the outputs of the model, if that is asked
	// for. Where it cannot be measured, it is estimated by the error.
	Damage    *float64 `json:"damage,omitempty"`
	Estimated bool     `json:"estimated,omitempty"`

	Stats quality.Stats `json:"stats"`

	growth  float64 // bytes that it adds to the output, against float
	decoded bool    // at every run of the model
}

// Total is a candidate applied to all weights. Those that cannot have it stay in float.
type Total struct {
	Candidate spec.Candidate `json:"candidate"`
	OutBytes  int64          `json:"out_bytes"`
	Error     float64        `json:"error"`
	Damage    *float64       `json:"damage,omitempty"`
}

// Point is the size and the error of a mix.
type Point struct {
	OutBytes int64   `json:"out_bytes"` // estimated, to some bytes for each weight
	Error    float64 `json:"error"`
}

// DamagePoint is the size and the damage of a mix.
type DamagePoint struct {
	OutBytes int64   `json:"out_bytes"` // estimated, as in a Point
	Damage   float64 `json:"damage"`
}

// Model measures the candidates on the weights of a model and recommends one for each. With
// MaxError it finds the smallest output within this error; with only MaxSize, the least error
// within this size. With both, an output that exceeds MaxSize is an error. Each candidate
// takes one pass over the weights, in bounded memory.
func Model(ctx context.Context, m *onnxq.Model, opts Options) (*Analysis, error) {
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
	opts   onnxq.Options
	output string

	damage Damage
	narrow bool           // convolutions may have fewer than 8 bits
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
		model: m, opts: opts.Options, output: opts.Output, damage: opts.Damage,
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
func (a *analyzer) planFor(c spec.Candidate) (*onnxq.Plan, error) {
	opts, err := a.with(c)
	if err != nil {
		return nil, err
	}
	return a.model.Plan(opts)
}

// with returns the options with one candidate for all weights.
func (a *analyzer) with(c spec.Candidate) (onnxq.Options, error) {
	opts := a.opts
	var err error
	opts.Precision, err = rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: c.Override()})
	return opts, err
}

// try measures candidate i, c.
func (a *analyzer) try(ctx context.Context, i int, c spec.Candidate) error {
	p, err := a.planFor(c)
	if err != nil {
		return fmt.Errorf("candidate %s: %w", c, err)
	}
	size, err := a.sizeOf(p)
	if err != nil {
		return err
	}
	if c.Format == spec.Float {
		a.FloatBytes = size
		a.slack = uncertain(access.Stages(p))
		return nil
	}
	stages := access.Stages(p)
	a.nothing = "the weights hold NaN, infinity or values too large for their scales"
	if len(stages.Weights) == 0 {
		a.nothing = stages.WhyNothing()
	}
	shapes := graph.NewShapes(stages.Graph()) // parts of weights may be stored in it
	run, workers := stages.Quantization()
	sums, err := measure(ctx, run, workers, func(bytes int64) { a.progress(run, i, bytes) })
	if err != nil {
		return err
	}
	growth, slack := growths(stages, size-a.FloatBytes)
	a.slack = max(a.slack, slack)
	for k := range stages.Weights {
		w := &stages.Weights[k]
		s := sums[k]
		if s == nil || !a.wanted(c, run.Weights[k].Name) {
			continue
		}
		at, err := a.weight(ctx, run.Weights[k], w.Shape, workers)
		if err != nil {
			return err
		}
		if run.NeedsFloat16Scales(k) {
			a.instead(c, run.Weights[k].Name)
			continue
		}
		if !a.narrow && c.Format.Bits() < 8 && w.Convolves() {
			continue
		}
		choice := Choice{Candidate: c, Bytes: w.Bytes(), Error: math.Sqrt(s.Noise()), Stats: s.Stats(), growth: growth[k], decoded: decoded(w, stages.Graph(), shapes)}
		if b := w.Choice.Block; b != c.Block {
			choice.Block = b
		}
		a.Weights[at].Choices = append(a.Weights[at].Choices, choice)
	}
	return nil
}

// instead has a weight tried with scales of float16: its own are too different for 8 bits.
func (a *analyzer) instead(c spec.Candidate, name string) {
	c.ScaleType = spec.ScaleFloat16
	switch {
	case a.only[c] != nil:
		a.only[c][name] = true
	case !slices.Contains(a.Candidates, c):
		a.only[c] = map[string]bool{name: true}
		a.Candidates = append(a.Candidates, c)
	}
}

// wanted reports whether a candidate is tried on a weight.
func (a *analyzer) wanted(c spec.Candidate, name string) bool {
	return a.only[c] == nil || a.only[c][name]
}

// measureDamages measures what the choices do to the model's outputs, a candidate at a time.
func (a *analyzer) measureDamages(ctx context.Context) error {
	all := make([][]*Choice, len(a.Candidates)) // that are to be measured, by candidate
	names, total := make([][]string, len(a.Candidates)), 0
	for i := range a.Weights {
		w := &a.Weights[i]
		for j := range w.Choices {
			choice := &w.Choices[j]
			if choice.Candidate.Format == spec.Float {
				choice.Damage = new(float64)
				continue
			}
			at := slices.Index(a.Candidates, choice.Candidate)
			all[at], names[at] = append(all[at], choice), append(names[at], w.Name)
			total++
		}
	}
	if total > 0 {
		a.damage.Expect(total)
	}
	for i, c := range a.Candidates {
		if len(all[i]) == 0 {
			continue
		}
		opts, err := a.with(c)
		if err != nil {
			return err
		}
		found, err := a.damage.Of(ctx, a.model, opts, names[i])
		if err != nil {
			return fmt.Errorf("candidate %s: %w", c, err)
		}
		for k, choice := range all[i] {
			choice.Damage = &found[k]
		}
	}
	return nil
}

// estimate sets damages that could not be measured: the square of the error, times what that
// is worth in the median of the others.
func (a *analyzer) estimate() {
	var worth []float64
	var missing []*Choice
	for _, w := range a.Weights {
		for i := range w.Choices {
			c := &w.Choices[i]
			if math.IsNaN(*c.Damage) || math.IsInf(*c.Damage, 0) {
				missing = append(missing, c)
			} else if c.Error > 0 {
				worth = append(worth, *c.Damage/(c.Error*c.Error))
			}
		}
	}
	median := 1.0
	if len(worth) > 0 {
		slices.Sort(worth)
		median = worth[len(worth)/2]
	}
	for _, c := range missing {
		*c.Damage, c.Estimated = median*c.Error*c.Error, true
	}
}

// noise is what adds up over weights: the damage, else the square of the error.
func (c *Choice) noise() float64 {
	if c.Damage != nil {
		return *c.Damage
	}
	return c.Error * c.Error
}

// progress reports bytes measured for candidate i.
func (a *analyzer) progress(run *quantize.Run, i int, bytes int64) {
	if a.opts.Progress == nil {
		return
	}
	a.done += bytes
	pass := int64(0)
	for _, w := range run.Weights {
		pass += w.SourceBytes()
	}
	a.opts.Progress(a.done, max(pass*int64(len(a.Candidates)-1), a.done))
}

// weight returns the index of a weight, adding it the first time.
func (a *analyzer) weight(ctx context.Context, w *quantize.Weight, shape []int64, workers int) (int, error) {
	if at, ok := a.index[w.Name]; ok {
		return at, nil
	}
	d, err := distribution(ctx, w, workers)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", msg.Quote(w.Name), err)
	}
	bytes := w.SourceBytes()
	a.index[w.Name] = len(a.Weights)
	a.Weights = append(a.Weights, Weight{
		Name: w.Name, DType: w.DType.String(), Shape: slices.Clone(shape), Bytes: bytes, Distribution: d,
		Choices: []Choice{{Candidate: spec.Candidate{Format: spec.Float}, Bytes: bytes, Stats: quality.Stats{N: w.Elements(), SQNR: math.Inf(1)}}},
	})
	return len(a.Weights) - 1, nil
}

// decoded reports whether ONNX Runtime, if it is the target, decodes a weight of x at every run.
func decoded(w *rewrite.Weight, x *graph.Graph, s *graph.Shapes) bool {
	if !w.Choice.Target.NBits || w.Choice.Style == spec.NBits {
		return false
	}
	return w.Decision.Decoded(x, s).Unfused() != ""
}

// dropDecoded takes away the choices that are decoded at every run, where there are others.
func (a *analyzer) dropDecoded() {
	for i := range a.Weights {
		w := &a.Weights[i]
		quick := func(c Choice) bool { return !c.decoded && c.Candidate.Format != spec.Float }
		if slices.ContainsFunc(w.Choices, quick) {
			w.Choices = slices.DeleteFunc(w.Choices, func(c Choice) bool { return c.decoded })
		}
	}
}

// total sets the totals of each candidate.
func (a *analyzer) total() {
	for i, c := range a.Candidates {
		t := Total{Candidate: c}
		var growth, noise, damage float64
		for _, w := range a.Weights {
			for _, choice := range w.Choices {
				if choice.Candidate == c && i > 0 {
					growth += choice.growth
					noise += choice.Error * choice.Error
					damage += choice.noise()
				}
			}
		}
		if a.damage != nil {
			t.Damage = &damage
		}
		t.OutBytes, t.Error = a.FloatBytes+int64(math.Round(growth)), math.Sqrt(noise/float64(len(a.Weights)))
		a.Totals = append(a.Totals, t)
	}
}

// mostPoints bounds the frontier.
const mostPoints = 200

// frontier sets Frontier and DamageFrontier, or even selections of them.
func (a *analyzer) frontier() {
	for _, p := range a.mixes(func(c *Choice) float64 { return c.Error * c.Error }) {
		a.Frontier = append(a.Frontier, Point{int64(math.Round(p.Weight)), math.Sqrt(p.Cost / float64(len(a.Weights)))})
	}
	if a.damage == nil {
		return
	}
	for _, p := range a.mixes((*Choice).noise) {
		a.DamageFrontier = append(a.DamageFrontier, DamagePoint{int64(math.Round(p.Weight)), p.Cost})
	}
}

// mixes are those with the least noise of their size: the bytes of the output as Weight, the noise
// as Cost.
func (a *analyzer) mixes(noiseOf func(*Choice) float64) (mixes []knapsack.Choice) {
	_, noise := a.classes(noiseOf)
	rest, line := a.rest(), knapsack.Frontier(noise)
	steps := len(line) - 1
	n := min(steps, mostPoints-1)
	for i := range n + 1 {
		p := line[i*steps/max(n, 1)]
		if p.Cost < line[0].Cost*1e-12 { // what is left of it when all has been subtracted
			p.Cost = 0
		}
		mixes = append(mixes, knapsack.Choice{Weight: rest + p.Weight, Cost: p.Cost})
	}
	return mixes
}
