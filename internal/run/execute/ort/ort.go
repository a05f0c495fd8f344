// Package ort runs models in ONNX Runtime.
//
// [Find] returns a [Runner], which opens models. A [Session] is one process of the program
// onnxquant-ort with one model; the caller closes it. That program loads the shared library, because a
// static binary cannot, and so that a crash of ONNX Runtime ends no other process. Package wire is the
// protocol between the two.
package ort

import (
	"context"
	"fmt"
	"time"

	"onnxquant/internal/run/execute"
)

// Runner is the execute.Runner of this package.
type Runner struct {
	helper, library string
	version         *string // known after the first run of this runner, or of one made from it
	plain           bool    // sessions run nodes as they are
	threads         int     // of a session; 0: as many as there are CPUs
	asUsers         bool    // sessions have ONNX Runtime's own options
	profile         string  // prefix of the files of profiles; "": none

	limit time.Duration // of each run, and of loading a model; 0: MostPerRun
}

// MostPerRun is the time that a run may take, unless the runner has another limit. A model can have a loop without
// end.
const MostPerRun = 20 * time.Minute

// Within returns a runner each of whose runs may take a time.
func (r *Runner) Within(limit time.Duration) *Runner {
	limited := *r
	limited.limit = limit
	return &limited
}

// tooLong is the error of a run that took too long.
func tooLong(limit time.Duration) error {
	return fmt.Errorf("stopped: one run took longer than %v; has the model a loop without end?", limit.Round(time.Second))
}

// Plain returns a runner without graph optimization: values inside a graph are computed by the model's
// own nodes, exactly.
func (r *Runner) Plain() *Runner {
	plain := *r
	plain.plain = true
	return &plain
}

// Threads returns a runner whose sessions compute on n threads.
func (r *Runner) Threads(n int) *Runner {
	limited := *r
	limited.threads = n
	return &limited
}

// AsUsers returns a runner whose sessions have ONNX Runtime's own options, as the programs of users have.
func (r *Runner) AsUsers() *Runner {
	users := *r
	users.asUsers = true
	return &users
}

// Profiling returns a runner whose sessions write a profile, to a file with this prefix.
func (r *Runner) Profiling(prefix string) *Runner {
	profiling := *r
	profiling.profile = prefix
	return &profiling
}

// Find looks for onnxquant-ort and the shared library. library is the path of the shared library; ""
// searches the usual places.
func Find(ctx context.Context, library string) (*Runner, error) {
	helper, err := findHelper()
	if err != nil {
		return nil, err
	}
	if library, err = findLibrary(ctx, library); err != nil {
		return nil, err
	}
	return &Runner{helper: helper, library: library, version: new(string)}, nil
}

// Name returns the name of ONNX Runtime, with its version after the first run.
func (r *Runner) Name() string {
	if *r.version == "" {
		return "ONNX Runtime"
	}
	return "ONNX Runtime " + *r.version
}

// Library returns the path of the shared library.
func (r *Runner) Library() string { return r.library }

// Session implements execute.Runner.
func (r *Runner) Session(ctx context.Context, path string) (execute.Session, error) {
	s, err := r.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	*r.version = s.Version
	return s, nil
}

// Run implements execute.Runner. Each run has a session of its own.
func (r *Runner) Run(ctx context.Context, path string, inputs []*execute.Tensor) ([]*execute.Tensor, error) {
	s, err := r.Session(ctx, path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Run(inputs)
}
