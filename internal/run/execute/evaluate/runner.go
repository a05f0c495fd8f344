// Package evaluate runs ONNX models in pure Go.
//
// Its runners open a model and return an execute.Session, which the caller closes. A session walks the
// graph node by node. The packages below internal/run/execute/op compute the nodes. Builds with the tag
// onnxgo have a second engine, whose arithmetic is that of gorgonnx, the backend of onnx-go.
//
// An unknown operator or attribute is an error that names the node and wraps execute.ErrUnsupported.
// Float16 and bfloat16 nodes compute in float32 and round their outputs.
//
// A node loads the initializers that it reads; small ones stay in memory. Values are dropped after their last
// reader.
package evaluate

import (
	"context"

	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

type runner struct {
	arithmetic op.Arithmetic // of another engine, or nil
	name       string
	bounded    bool
	progress   func(done, total int64) // in nodes; may be nil
}

// Reporting returns a copy of a runner of this package that reports its progress, in nodes of the
// graph. It returns any other runner unchanged.
func Reporting(r execute.Runner, progress func(done, total int64)) execute.Runner {
	if r, ok := r.(runner); ok {
		r.progress = progress
		return r
	}
	return r
}

// Go is the engine that every build has.
var Go execute.Runner = runner{name: "pure Go"}

func (r runner) Name() string { return r.name }

// Session implements execute.Runner.
func (r runner) Session(ctx context.Context, path string) (execute.Session, error) {
	return r.open(ctx, path)
}

// Run implements execute.Runner.
func (r runner) Run(ctx context.Context, path string, inputs []*execute.Tensor) ([]*execute.Tensor, error) {
	s, err := r.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Run(inputs)
}
