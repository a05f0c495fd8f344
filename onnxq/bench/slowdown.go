package bench

import (
	"context"
	"errors"
	"fmt"
	"math"

	"onnxquant/internal/run/execute/ort"
)

// ErrSlower is wrapped by the error about an output that is slower than allowed.
var ErrSlower = errors.New("the output is too slow")

// Limit returns what onnxq.Options.Try takes: it fails if a run of the output takes more than most times as
// long as a run of the model in. With one thread, the default, that is CPU time, which other programs disturb
// least. With more threads it is p50, for threads of ONNX Runtime use CPU time while they wait. told, if not
// nil, gets the result as a text. Limit fails if it finds no ONNX Runtime.
func Limit(ctx context.Context, in string, most float64, opts Options, told func(text string)) (try func(ctx context.Context, out string) error, err error) {
	if _, err := ort.Find(ctx, opts.ORTLibrary); err != nil {
		return nil, fmt.Errorf("the speed cannot be measured: %w", err)
	}
	return func(ctx context.Context, out string) error {
		took, err := Compare(ctx, in, out, most, opts)
		if err != nil {
			return fmt.Errorf("the speed cannot be measured: %w", err)
		}
		text := fmt.Sprintf("%.2f ± %.2f times the %s of IN in %s", took.Ratio, took.Error, took.figure, took.runtime)
		if took.Ratio > most {
			return fmt.Errorf("%w: a run takes %s, and %g is allowed", ErrSlower, text, most)
		}
		if told != nil {
			told(text)
		}
		return nil
	}, nil
}

// Comparison is the time of a run of a model, over that of another one.
type Comparison struct {
	Ratio float64 // of CPU time with one thread, else of p50
	Error float64 // standard error of the ratio
	P50   float64 // of the model, in milliseconds

	figure, runtime string
}

// Compare measures the model out beside the model in, until it is clear whether the ratio is above the limit, or the time of opts
// is over. Figures are those of Limit.
func Compare(ctx context.Context, in, out string, limit float64, opts Options) (*Comparison, error) {
	opts.Threads = max(opts.Threads, 1)
	c, of := &Comparison{figure: "CPU time"}, func(s *series) []float64 { return s.cpus }
	if opts.Threads > 1 {
		c.figure, of = "time", func(s *series) []float64 { return s.p50s }
	}
	opts.clear = func(all []series) bool {
		list := ratios(of(&all[1]), of(&all[0]))
		c.Ratio = median(list)
		c.Error = c.Ratio * standardError(list)
		return isClear(c.Ratio, c.Error, limit)
	}
	r, err := Models(ctx, []string{in, out}, opts)
	if err != nil {
		return nil, err
	}
	c.P50, c.runtime = r.Models[1].P50, r.Runtime
	return c, nil
}

// isClear reports whether a ratio is clearly above or below a limit.
func isClear(ratio, standardError, limit float64) bool {
	const sigmas = 5
	return math.Abs(ratio-limit) > sigmas*standardError
}
