package tune

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
)

// Bounds of the runs that weigh the formats of weights.
const (
	mostWeighing = 0.15 // of the budget
	weighing     = 30.0 // seconds, without a budget
	weighSamples = 8
	quick        = 2.0 // seconds for more samples: mixes that few samples choose fit others badly
	quickSamples = 64
	least        = 2          // or 1, where that takes too long
	harmless     = 1 / 3000.0 // of the limit: the losses of hundreds of such weights do not count
	patience     = 3          // times as long for the least number of samples: errors of weights alone rank mixes badly
)

// anchors are the formats that runs weigh. Between them the loss of a weight follows its error, beyond them its squared error.
// The first one tells for which weights the others are needed.
var anchors = []spec.Candidate{{Format: spec.Int4, Block: 32, ZeroPoint: true}, {Format: spec.Int2, Block: 16, ZeroPoint: true}, {Format: spec.Int4, Block: 128}, finest}

// finest is the anchor with the least error.
var finest = spec.Candidate{Format: spec.Int8, Block: spec.PerChannel}

// weigh measures what each weight in each format does to the outputs, or without data its error, for estimates and mixes.
func (s *search) weigh(ctx context.Context) (*analyze.Mixes, error) {
	p := s.planner
	opts := analyze.Options{Options: p.options(), Candidates: formats}
	opts.Progress = func(done, total int64) { s.progress("weighing", int(done*100/max(total, 1)), 100) }
	if s.outputs != nil {
		kept, err := openWeighed(s.folder, append([]string{s.journal.key}, p.common(p.ops())...)...)
		if err != nil {
			return nil, err
		}
		n := kept.samples
		if n == 0 {
			if n, err = s.affordable(); err != nil {
				return nil, err
			}
		}
		if n > 0 {
			data := calibrate.Options{Data: s.opts.Data, Samples: n, Library: s.opts.Library, Progress: func(stage string, done, total int) { s.progress("weighing", done, total) }}
			open, err := sensitivity.Open(ctx, s.in, data)
			if err != nil {
				return nil, err
			}
			defer open.Close()
			kept.Damage, kept.samples = open, n
			limit, spread := s.prior()
			kept.harmless, kept.hopeless = harmless*limit*math.Exp(-spread), 3*limit*math.Exp(spread)
			opts.Damage, opts.Measured, opts.Progress = kept, anchors, nil
		} else {
			s.note("the formats of weights were weighed by their errors, for runs of the model take too long")
		}
	}
	m, err := analyze.MeasureMixes(ctx, s.model, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.result.Input, err)
	}
	p.weights = map[string]*analyze.Weight{}
	for i, w := range m.Weights() {
		p.weights[w.Name] = &m.Weights()[i]
	}
	return m, nil
}

// affordable returns how many samples can weigh each weight in each format; 0 if the time is too short.
func (s *search) affordable() (int, error) {
	o := s.planner.options()
	o.Bits, o.AllowFallback = 8, true
	plan, err := s.model.Plan(o)
	if err != nil {
		return 0, err
	}
	weights := 0
	for _, t := range plan.Tensors {
		if t.Decision == onnxq.Quantize {
			weights++
		}
	}
	seconds := weighing
	if s.opts.Budget > 0 {
		seconds = mostWeighing * s.opts.Budget.Seconds()
	}
	each := max(s.outputs.seconds*float64(weights*len(anchors)), 1e-9)
	n := max(min(int(seconds/each), weighSamples), min(int(min(seconds, quick)/each), quickSamples))
	if n < least {
		n = min(int(patience*seconds/each), least)
	}
	if n < 1 {
		return 0, nil
	}
	n = 1 << (bits.Len(uint(n)) - 1) // a power of two: the time of a run is never quite the same
	return min(n, s.outputs.samples.Calibration), nil
}
