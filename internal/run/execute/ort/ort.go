// Package ort runs models in ONNX Runtime.
//
// [Find] returns a [Runner], which opens models. A [Session] is one process of the program
// onnxquant-ort with one model; the caller closes it. That program loads the shared library, because a
// static binary cannot, and so that a crash of ONNX Runtime ends no other process. Package wire is the
// protocol between the two.
package ort

import (
	"context"

	"onnxquant/internal/run/execute"
)

// Runner is the execute.Runner of this package.
type Runner struct {
	helper, library string
	version         string // known after the first run
	plain           bool   // sessions run nodes as they are
	threads         int    // of a session; 0: as many as there are CPUs
	asUsers         bool   // sessions have ONNX Runtime's own options
	profile         string // prefix of the files of profiles; "": none
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
	return &Runner{helper: helper, library: library}, nil
}

// Name returns the name of ONNX Runtime, with its version after the first run.
func (r *Runner) Name() string {
	if r.version == "" {
		return "ONNX Runtime"
	}
	return "ONNX Runtime " + r.version
}

// Library returns the path of the shared library.
func (r *Runner) Library() string { return r.library }

// Session implements execute.Runner.
func (r *Runner) Session(ctx context.Context, path string) (execute.Session, error) {
	s, err := r.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	r.version = s.Version
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
