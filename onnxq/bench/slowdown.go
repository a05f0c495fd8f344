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
	opts.Threads = max(opts.Threads, 1)
	if _, err := ort.Find(ctx, opts.ORTLibrary); err != nil {
		return nil, fmt.Errorf("the speed cannot be measured: %w", err)
	}
	figure, of := "CPU time", func(s *series) []float64 { return s.cpus }
	if opts.Threads > 1 {
		figure, of = "time", func(s *series) []float64 { return s.p50s }
	}
	var took, off float64 // the ratio, and its standard error
	opts.clear = func(all []series) bool {
		list := ratios(of(&all[1]), of(&all[0]))
		took = median(list)
		off = took * standardError(list)
		return isClear(took, off, most)
	}
	return func(ctx context.Context, out string) error {
		r, err := Models(ctx, []string{in, out}, opts)
		if err != nil {
			return fmt.Errorf("the speed cannot be measured: %w", err)
		}
		text := fmt.Sprintf("%.2f ± %.2f times the %s of IN in %s", took, off, figure, r.Runtime)
		if took > most {
			return fmt.Errorf("%w: a run takes %s, and %g is allowed", ErrSlower, text, most)
		}
		if told != nil {
			told(text)
		}
		return nil
	}, nil
}

// isClear reports whether a ratio is clearly above or below a limit.
func isClear(ratio, standardError, limit float64) bool {
	const sigmas = 5
	return math.Abs(ratio-limit) > sigmas*standardError
}
