package analyze

import (
	"context"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/quantize"
	"onnxquant/internal/rewrite"
	"onnxquant/quality"
	"onnxquant/spec"
)

// try measures a candidate.
func (a *analyzer) try(ctx context.Context, c spec.Candidate) error {
	stages, err := a.planFor(c)
	if err != nil {
		return fmt.Errorf("candidate %s: %w", c, err)
	}
	if c.Format == spec.Float {
		if a.beyond, err = beyond(ctx, stages); err != nil {
			return err
		}
	}
	size, err := a.sizeOf(stages)
	if err != nil {
		return err
	}
	if c.Format == spec.Float {
		if a.FloatBytes = size; a.final.Provenance != nil {
			with := a.opts
			with.Provenance, with.Bits = a.final.Provenance, 4 // the default, but half precision alone quantizes nothing
			if stages, err = a.plan(with); err != nil {
				return err
			}
			a.record = stages.Recorded()
		}
		a.slack = uncertain(stages)
		return nil
	}
	a.nothing = "the weights hold NaN, infinity or values too large for their scales"
	if len(stages.Weights) == 0 {
		a.nothing = stages.WhyNothing()
	}
	shapes := graph.NewShapes(stages.Graph()) // parts of weights may be stored in it
	run, workers := stages.Quantization()
	sums, err := measure(ctx, run, workers, a.progress(run))
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
		a.Weights[at].Node = w.Reader()
		if run.NeedsFloat16Scales(k) {
			a.instead(c, run.Weights[k].Name)
			continue
		}
		if !a.narrow && c.Format.Bits() < 8 && w.Convolves() {
			continue
		}
		choice := Choice{Candidate: c, Bytes: w.Bytes(), Error: math.Sqrt(s.Noise()), Stats: s.Stats(), growth: growth[k], decoded: decoded(w, stages.Graph(), shapes)}
		a.noteReaders(at, w)
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

// progress returns a function that reports bytes measured in a run.
func (a *analyzer) progress(run *quantize.Run) func(bytes int64) {
	if a.opts.Progress == nil {
		return func(int64) {}
	}
	pass := int64(0)
	for _, w := range run.Weights {
		pass += w.SourceBytes()
	}
	return func(bytes int64) {
		a.done += bytes
		a.opts.Progress(a.done, max(pass*int64(len(a.Candidates)-1), a.done))
	}
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
	if !w.Choice.Target.NBits || w.Choice.Style == spec.NBits || w.Choice.Folded {
		return false
	}
	return w.Decision.Decoded(x, s).Unfused() != ""
}

// dropDecoded removes the choices that are decoded in every run, unless a weight has only such
// choices.
func (a *analyzer) dropDecoded() {
	for i := range a.Weights {
		w := &a.Weights[i]
		quick := func(c Choice) bool { return !c.decoded && c.Candidate.Format != spec.Float }
		if slices.ContainsFunc(w.Choices, quick) {
			w.Choices = slices.DeleteFunc(w.Choices, func(c Choice) bool { return c.decoded })
		}
	}
}
