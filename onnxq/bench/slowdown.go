package bench

import (
	"context"
	"errors"
	"fmt"
)

// ErrSlower is wrapped by the error about an output that is slower than allowed.
var ErrSlower = errors.New("the output is too slow")

// Limit returns what onnxq.Options.Try takes: it fails if a run of the output takes more than most times as
// long as a run of the model in. With one thread, the default, that is CPU time, which other programs disturb
// least. With more threads it is p50, for threads of ONNX Runtime use CPU time while they wait.
func Limit(in string, most float64, opts Options) func(ctx context.Context, out string) error {
	opts.Threads = max(opts.Threads, 1)
	return func(ctx context.Context, out string) error {
		r, err := Models(ctx, []string{in, out}, opts)
		if err != nil {
			return fmt.Errorf("the speed cannot be measured: %w", err)
		}
		took, figure := r.Models[1].CPURatio, "CPU time"
		if opts.Threads > 1 {
			took, figure = r.Models[1].Ratio, "time"
		}
		if took > most {
			return fmt.Errorf("%w: a run takes %.2f times the %s of the input's in %s, and %g is allowed", ErrSlower, took, figure, r.Runtime, most)
		}
		return nil
	}
}
