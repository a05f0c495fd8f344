package analyze

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/convert"
	"onnxquant/internal/knapsack"
	"onnxquant/internal/msg"
	"onnxquant/internal/quantize"
	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
	"onnxquant/quality"
)

// Options say what an analysis tries, and what it optimizes.
type Options struct {
	onnxq.Options                  // what selects weights and forms; no Precision
	Candidates    []spec.Candidate // default DefaultCandidates; Float is always one of them
	MaxError      float64          // bound of the error; 0: none, but 0.1 if there is no other bound
	MaxSize       int64            // bound of the output's bytes; 0: none
}

const defaultMaxError = 0.1

// Analysis tells what every candidate does to every weight, and which is best for each.
//
// The error of a weight is its root mean square error as a part of its own root mean
// square: 10^(-SQNR/20). The error of a model is the root mean square of those of its
// weights, each counting once, whatever its size: noise in one matrix adds to the noise of
// the activations as that in any other does. It is a measure of weights, not of the model's
// answers.
type Analysis struct {
	Candidates []spec.Candidate `json:"candidates"`
	Weights    []Weight         `json:"weights"`
	Totals     []Total          `json:"totals"` // of each candidate for all weights

	MaxError float64 `json:"max_error,omitempty"` // the bounds
	MaxSize  int64   `json:"max_size,omitempty"`

	FloatBytes int64   `json:"float_bytes"` // of the output with all weights in float
	OutBytes   int64   `json:"out_bytes"`   // of the output as recommended, exact
	Error      float64 `json:"error"`       // of the model as recommended

	// Gap is how much less, at most, the optimum could be than the recommendation, as a
	// part of it: in bytes, or if only the size is bounded, in error.
	Gap float64 `json:"gap"`

	Precision *rules.Precision `json:"precision_info"` // what is recommended
}

// Weight is one weight's part.
type Weight struct {
	Name         string         `json:"name"`
	DType        string         `json:"dtype"`
	Shape        []int64        `json:"shape"`
	Bytes        int64          `json:"bytes"`
	Distribution Distribution   `json:"distribution"`
	Choices      []Choice       `json:"choices"`     // those that are possible
	Recommended  spec.Candidate `json:"recommended"` // one of them
}

// Choice is what a candidate does to a weight.
type Choice struct {
	Candidate spec.Candidate `json:"candidate"`
	Bytes     int64          `json:"bytes"`
	Error     float64        `json:"error"`
	Block     int            `json:"block,omitempty"` // that it gets, if not the candidate's
	Stats     quality.Stats  `json:"stats"`
}

// Total is what a candidate does to all weights, those that cannot have it staying in
// float.
type Total struct {
	Candidate spec.Candidate `json:"candidate"`
	OutBytes  int64          `json:"out_bytes"`
	Error     float64        `json:"error"`
}

// Model measures what candidates do to the weights of a model, and finds the smallest
// output whose error is within MaxError, or the one of least error within MaxSize, or, with
// both, the smallest within both. Each candidate takes a pass over the weights, in bounded
// memory; progress, if set, is told of it.
func Model(ctx context.Context, m *onnxq.Model, opts Options) (*Analysis, error) {
	a, err := newAnalyzer(m, opts)
	if err != nil {
		return nil, err
	}
	for i, c := range a.Candidates {
		if err := a.try(ctx, i, c); err != nil {
			return nil, err
		}
	}
	if len(a.Weights) == 0 {
		return nil, errors.New("no weight was selected that can be quantized")
	}
	a.total()
	if err := a.recommend(); err != nil {
		return nil, err
	}
	return &a.Analysis, nil
}

// analyzer is an analysis in the making.
type analyzer struct {
	Analysis
	model *onnxq.Model
	opts  onnxq.Options

	overheads []float64      // bytes that a candidate adds for each weight besides its tensors
	rest      float64        // bytes of the output that are not the weights
	index     map[string]int // of weights
	done      int64
}

func newAnalyzer(m *onnxq.Model, opts Options) (*analyzer, error) {
	switch {
	case opts.Precision != nil:
		return nil, errors.New("an analysis makes a precision_info and takes none")
	case !(opts.MaxError >= 0) || math.IsInf(opts.MaxError, 1):
		return nil, fmt.Errorf("max error %v: want 0 or more", opts.MaxError)
	case opts.MaxSize < 0:
		return nil, fmt.Errorf("max size %d is negative", opts.MaxSize)
	}
	a := &analyzer{model: m, opts: opts.Options, index: map[string]int{}}
	a.opts.Strict, a.opts.MinCoverage, a.opts.Format, a.opts.Bits, a.opts.ZeroPoint = false, 0, "", 0, false
	a.MaxError, a.MaxSize = opts.MaxError, opts.MaxSize
	if a.MaxError == 0 && a.MaxSize == 0 {
		a.MaxError = defaultMaxError
	}
	a.Candidates = []spec.Candidate{{Format: spec.Float}}
	if len(opts.Candidates) == 0 {
		opts.Candidates = spec.DefaultCandidates
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

// planFor plans a candidate for all weights.
func (a *analyzer) planFor(c spec.Candidate) (*onnxq.Plan, error) {
	precision, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: c.Override()})
	if err != nil {
		return nil, err
	}
	opts := a.opts
	opts.Precision = precision
	return a.model.Plan(opts)
}

// try measures a candidate.
func (a *analyzer) try(ctx context.Context, i int, c spec.Candidate) error {
	p, err := a.planFor(c)
	if err != nil {
		return fmt.Errorf("candidate %s: %w", c, err)
	}
	if c.Format == spec.Float {
		a.FloatBytes = p.OutBytes
		a.overheads = []float64{0}
		return nil
	}
	stages := p.Stages()
	run, workers := stages.Quantization()
	sums, err := measure(ctx, run, workers, func(bytes int64) { a.progress(run, i, bytes) })
	if err != nil {
		return err
	}
	overhead := p.OutBytes - a.FloatBytes
	for k := range stages.Weights {
		w := &stages.Weights[k]
		overhead -= w.Bytes() - w.Decision.Bytes
		s := sums[k]
		if s == nil {
			continue
		}
		at, err := a.weight(ctx, run.Weights[k], w.Shape, workers)
		if err != nil {
			return err
		}
		choice := Choice{Candidate: c, Bytes: w.Bytes(), Error: math.Sqrt(s.Noise()), Stats: s.Stats()}
		if b := w.Choice.Block; b != c.Block {
			choice.Block = b
		}
		a.Weights[at].Choices = append(a.Weights[at].Choices, choice)
	}
	a.overheads = append(a.overheads, float64(overhead)/float64(max(len(stages.Weights), 1)))
	return nil
}

// progress tells the caller of bytes that were measured for candidate i.
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

// weight returns the index of a weight. The first time it finds the distribution of its
// values.
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

// total sums up each candidate.
func (a *analyzer) total() {
	for i, c := range a.Candidates {
		t := Total{Candidate: c, OutBytes: a.FloatBytes}
		noise := 0.0
		for _, w := range a.Weights {
			for _, choice := range w.Choices {
				if choice.Candidate == c && i > 0 {
					t.OutBytes += choice.Bytes - w.Bytes + int64(math.Round(a.overheads[i]))
					noise += choice.Error * choice.Error
				}
			}
		}
		t.Error = math.Sqrt(noise / float64(len(a.Weights)))
		a.Totals = append(a.Totals, t)
	}
}

// slack is more than what is reckoned for the bytes of nodes and names can be too much.
const slack = 1 << 10

// recommend solves the problem and makes the precision_info. Sizes are sums of weights and
// their nodes, and those of nodes are not quite independent of each other. So a bound of the
// size is first taken for more than it is, and then lowered by what the plans have too much.
func (a *analyzer) recommend() error {
	a.rest = float64(a.FloatBytes)
	for _, w := range a.Weights {
		a.rest -= float64(w.Bytes)
	}
	if a.MaxError == 0 {
		a.rest -= slack
	}
	bound := -1.0
	for range 32 {
		s, err := a.solve()
		if err != nil {
			return err
		}
		if bound < 0 {
			bound = s.Bound
		}
		if err := a.take(s.Pick); err != nil {
			return err
		}
		if a.MaxSize == 0 || a.OutBytes <= a.MaxSize {
			a.Gap = gap(s.Cost, bound)
			return nil
		}
		if a.MaxError > 0 {
			return fmt.Errorf("within an error of %v the output would have %d bytes, more than %d", a.MaxError, a.OutBytes, a.MaxSize)
		}
		left := float64(a.MaxSize) - a.rest - s.Weight // that these choices leave, too
		a.rest += max(float64(a.OutBytes-a.MaxSize), left+1)
	}
	return fmt.Errorf("no choice of formats was found that makes the output at most %d bytes", a.MaxSize)
}

// take recommends the choices picked.
func (a *analyzer) take(pick []int) (err error) {
	noise := 0.0
	entries := make([]rules.PrecisionEntry, len(a.Weights))
	for i := range a.Weights {
		w := &a.Weights[i]
		choice := w.Choices[pick[i]]
		w.Recommended = choice.Candidate
		noise += choice.Error * choice.Error
		entries[i] = rules.PrecisionEntry{Pattern: rules.PatternOf(w.Name), Override: choice.Candidate.Override()}
	}
	// A longer pattern may match what a shorter one does, as that of a weight in a
	// subgraph, and is the exception.
	slices.SortStableFunc(entries, func(a, b rules.PrecisionEntry) int { return cmp.Compare(len(a.Pattern), len(b.Pattern)) })
	if a.Precision, err = rules.NewPrecision(entries...); err != nil {
		return err
	}
	opts := a.opts
	opts.Precision = a.Precision
	p, err := a.model.Plan(opts)
	if err != nil {
		return err
	}
	a.OutBytes, a.Error = p.OutBytes, math.Sqrt(noise/float64(len(a.Weights)))
	return nil
}

// size is what a choice adds to the output.
func (a *analyzer) size(c Choice) float64 {
	return float64(c.Bytes) + a.overheads[slices.Index(a.Candidates, c.Candidate)]
}

// gap returns how much of a cost the bound leaves open.
func gap(cost, bound float64) float64 {
	if cost <= 0 || bound >= cost {
		return 0
	}
	return (cost - bound) / cost
}

// solve finds the choices: the least bytes within the error if that is bounded, else the
// least noise within the bytes.
func (a *analyzer) solve() (knapsack.Solution, error) {
	var bytes, noise [][]knapsack.Choice // the one bounded by the other
	smallest := a.rest
	for _, w := range a.Weights {
		var b, n []knapsack.Choice
		least := math.Inf(1)
		for _, c := range w.Choices {
			size, e := a.size(c), c.Error*c.Error
			b = append(b, knapsack.Choice{Cost: size, Weight: e})
			n = append(n, knapsack.Choice{Cost: e, Weight: size})
			least = min(least, size)
		}
		bytes, noise = append(bytes, b), append(noise, n)
		smallest += least
	}
	if a.MaxError > 0 {
		// A little less than the bound: sums in another order must not be above it.
		s, _ := knapsack.Solve(bytes, a.MaxError*a.MaxError*float64(len(a.Weights))*(1-1e-9)) // float has no noise
		s.Cost, s.Bound = s.Cost+a.rest, s.Bound+a.rest
		return s, nil
	}
	s, ok := knapsack.Solve(noise, float64(a.MaxSize)-a.rest)
	if !ok {
		return s, fmt.Errorf("the output would be larger than %d bytes whatever the formats; the smallest that they make has about %.0f", a.MaxSize, math.Ceil(smallest+slack))
	}
	s.Cost, s.Bound = math.Sqrt(s.Cost), math.Sqrt(max(s.Bound, 0)) // errors, as they are told
	return s, nil
}
