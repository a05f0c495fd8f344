// Package observe runs a model on samples and hands on values inside its graph, in bounded memory.
//
// [Engine.Values] gets the path of a model, samples and the names of values. It calls a function of
// the caller with each value of each sample. Each run returns at most as many values as fit into a
// limit.
package observe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/evaluate"
	"onnxquant/internal/run/execute/ort"
	"onnxquant/internal/run/samples"
)

// Engine runs models.
type Engine struct {
	ort    *ort.Runner             // nil: pure Go
	lacked error                   // why it is pure Go, if nobody asked for that
	report func(done, total int64) // progress of pure Go; nil: none
}

// The names of engines.
const (
	Auto = "auto" // ONNX Runtime if it is found, else pure Go
	Go   = "go"
	ORT  = "ort"
)

// Engines lists the names.
var Engines = []string{Auto, Go, ORT}

// Find finds an engine by its name, "" is Auto. library is the path of ONNX Runtime's shared
// library; "" searches the usual places.
func Find(ctx context.Context, name, library string) (*Engine, error) {
	if name == Go {
		return &Engine{}, nil
	}
	runner, err := ort.Find(ctx, library)
	if err != nil && (name == ORT || library != "" || ctx.Err() != nil) {
		return nil, err
	}
	return &Engine{ort: runner, lacked: err}, nil
}

// With returns an engine that runs models in ONNX Runtime.
func With(r *ort.Runner) *Engine { return &Engine{ort: r} }

// Lacking returns the pure Go engine, for a model that ONNX Runtime cannot run.
func Lacking(why error) *Engine { return &Engine{lacked: why} }

// Lacked is why ONNX Runtime was not found, if it was looked for.
func (e *Engine) Lacked() error { return e.lacked }

// IsGo reports whether the engine is the pure Go one.
func (e *Engine) IsGo() bool { return e.ort == nil }

// Reporting returns an engine that reports the progress of a run, in nodes, if it is the pure Go one.
func (e *Engine) Reporting(progress func(done, total int64)) *Engine {
	with := *e
	with.report = progress
	return &with
}

// Plain returns an engine that computes values by the model's own nodes, without optimizing
// the graph.
func (e *Engine) Plain() *Engine {
	if e.IsGo() {
		return e
	}
	return &Engine{ort: e.ort.Plain()}
}

// Beside returns an engine for n sessions that run at the same time and share the processors.
func (e *Engine) Beside(n int) *Engine {
	if e.IsGo() {
		return e
	}
	return &Engine{ort: e.ort.Threads(max(runtime.NumCPU()/n, 1))}
}

// Name names the engine for people.
func (e *Engine) Name() string {
	if e.IsGo() {
		return evaluate.Go.Name()
	}
	return e.ort.Name()
}

// ErrGo is wrapped by errors about features that the pure Go engine lacks.
var ErrGo = errors.New("this needs ONNX Runtime")

// Open opens the model at path. The values inside of its graph that are named can be asked for.
func (e *Engine) Open(ctx context.Context, path string, values ...string) (execute.Session, error) {
	if e.IsGo() {
		return evaluate.OpenReporting(ctx, path, e.report)
	}
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	for _, o := range m.Proto.GetGraph().GetOutput() {
		values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == o.GetName() })
	}
	s, err := e.ort.Open(ctx, path, values...)
	return opened(ctx, s, err)
}

// Again runs an open model on inputs again, if ONNX Runtime runs it. It returns the time, if all processors are free, and the
// most memory that its process has had. For the Go engine it returns the time of the run before.
func (s *Shapes) Again(inputs []*execute.Tensor, before time.Duration) (run time.Duration, memory int64, apart bool, err error) {
	if s, ok := s.Session.(*ort.Session); ok {
		run, memory, err = s.Once(inputs)
		return run, memory, true, err
	}
	return before, 0, false, nil
}

// opened returns no session beside an error: a nil *ort.Session is no nil execute.Session. If the opening was stopped, the
// error is the cause.
func opened(ctx context.Context, s *ort.Session, err error) (execute.Session, error) {
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, err
}

// OpenWith opens the model at path, with more nodes, initializers and outputs, and with
// initializers that become inputs. It is for ONNX Runtime alone.
func (e *Engine) OpenWith(ctx context.Context, path string, more *onnxpb.GraphProto) (execute.Session, error) {
	switch {
	case e.IsGo() && e.lacked != nil:
		return nil, fmt.Errorf("%w: %w", ErrGo, e.lacked)
	case e.IsGo():
		return nil, ErrGo
	}
	s, err := e.ort.OpenWith(ctx, path, more)
	return opened(ctx, s, err)
}

// Options are the options of Values.
type Options struct {
	Memory   int64                 // bytes of values that a run may return; 0: DefaultMemory
	Progress func(done, total int) // called after each run; may be nil
}

// DefaultMemory is enough for all values of a small model, and for some of a large one.
const DefaultMemory = 128 << 20

// Values runs the model at path on all samples, and calls do with each named value of each sample. The
// values are divided into groups that fit into the memory limit; the model runs once on each sample
// for each group. do owns the tensor that it gets.
func (e *Engine) Values(ctx context.Context, path string, data *samples.Samples, names []string, opts Options, do func(*execute.Tensor) error) error {
	if len(names) == 0 {
		return nil
	}
	groups := [][]string{names}
	if !e.IsGo() {
		limit := opts.Memory
		if limit == 0 {
			limit = DefaultMemory
		}
		sizes, err := e.sizes(ctx, path, data, names)
		if err != nil {
			return err
		}
		groups = grouped(names, sizes, limit)
	}
	done := 0
	for _, group := range groups {
		err := e.Each(ctx, path, data, group, func(values []*execute.Tensor) error {
			for _, v := range values {
				if err := do(v); err != nil {
					return fmt.Errorf("value %q: %w", v.Name, err)
				}
			}
			if done++; opts.Progress != nil {
				opts.Progress(done, len(groups)*data.Len())
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Each runs the model at path on all samples, and calls do with the named values, all of one
// sample together.
func (e *Engine) Each(ctx context.Context, path string, data *samples.Samples, names []string, do func([]*execute.Tensor) error) error {
	s, err := e.Open(ctx, path, names...)
	if err != nil {
		return err
	}
	defer s.Close()
	return Run(ctx, s, data, names, do)
}

// Run runs an open model on all samples, and calls do with the named values, all of one sample
// together.
func Run(ctx context.Context, s execute.Session, data *samples.Samples, names []string, do func([]*execute.Tensor) error) error {
	number := 0
	for inputs, err := range data.All() {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		values, err := s.Run(inputs, names...)
		if err != nil {
			return data.Failed(ctx, number, inputs, err)
		}
		if err := do(values); err != nil {
			return err
		}
		number++
	}
	return nil
}

// Sizes returns the bytes of values of the model at path, on these inputs.
func (e *Engine) Sizes(ctx context.Context, path string, inputs []*execute.Tensor, names []string) ([]int64, error) {
	if !e.IsGo() {
		s, err := e.OpenShapes(ctx, path, names)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		return sizesIn(s, inputs)
	}
	s, err := evaluate.OpenReporting(ctx, path, e.report)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err := s.Run(inputs); err != nil {
		return nil, err
	}
	sizes := make([]int64, len(names))
	for i, name := range names {
		sizes[i] = s.Sizes()[name]
	}
	return sizes, nil
}

// sizes returns the bytes that values have in the first sample.
func (e *Engine) sizes(ctx context.Context, path string, data *samples.Samples, names []string) ([]int64, error) {
	s, err := e.OpenShapes(ctx, path, names)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for inputs, err := range data.All() {
		if err != nil {
			return nil, err
		}
		sizes, err := sizesIn(s, inputs)
		if err != nil {
			return nil, data.Failed(ctx, 0, inputs, err)
		}
		return sizes, nil
	}
	return nil, errors.New("no samples")
}

// Shapes is an open model that tells the shapes of values. It returns no value: one may be too large.
type Shapes struct {
	execute.Session
	names, shapes []string // of values, and of their shapes
}

// OpenShapes opens the model at path for the shapes of values.
func (e *Engine) OpenShapes(ctx context.Context, path string, names []string) (*Shapes, error) {
	s := &Shapes{names: names}
	if e.IsGo() {
		session, err := evaluate.Open(ctx, path)
		s.Session = session
		return s, err
	}
	more := &onnxpb.GraphProto{}
	for _, name := range names {
		shape := name + "/onnxquant_shape"
		if !slices.Contains(s.shapes, shape) {
			more.Node = append(more.Node, &onnxpb.NodeProto{OpType: new("Shape"), Input: []string{name}, Output: []string{shape}})
			more.Output = append(more.Output, &onnxpb.ValueInfoProto{Name: &shape})
		}
		s.shapes = append(s.shapes, shape)
	}
	slices.Reverse(more.Node) // ONNX Runtime runs the last ones first: if they read the first values, it frees these early
	var err error
	s.Session, err = e.OpenWith(ctx, path, more)
	return s, err
}

// Of runs the model, and returns the shapes. A value that no node makes, such as in a branch that does not run, has none.
func (s *Shapes) Of(inputs []*execute.Tensor) (shapes [][]int64, err error) {
	if session, ok := s.Session.(*evaluate.Session); ok {
		_, err := session.Run(inputs)
		for _, name := range s.names {
			dims := session.Shapes()[name]
			if i := slices.IndexFunc(inputs, func(t *execute.Tensor) bool { return t.Name == name }); i >= 0 {
				dims = inputs[i].Dims
			}
			shapes = append(shapes, dims)
		}
		return shapes, err
	}
	values, err := s.Run(inputs, s.shapes...)
	for _, v := range values {
		shapes = append(shapes, v.Int64s())
	}
	return shapes, err
}

// sizesIn returns the bytes of values, from their shapes.
func sizesIn(s *Shapes, inputs []*execute.Tensor) ([]int64, error) {
	shapes, err := s.Of(inputs)
	if err != nil {
		return nil, err
	}
	sizes := make([]int64, len(shapes))
	for i, dims := range shapes {
		n, err := dtype.Elements(dims)
		if err != nil {
			return nil, fmt.Errorf("value %q: %w", s.names[i], err)
		}
		sizes[i] = 8 * min(n, 1<<50) // at most 8 bytes an element
	}
	return sizes, nil
}

// grouped divides names into groups of at most limit bytes together, or of one name. Their
// order stays.
func grouped(names []string, sizes []int64, limit int64) (groups [][]string) {
	start, sum := 0, int64(0)
	for i, n := range sizes {
		if i > start && sum+n > limit {
			groups = append(groups, names[start:i])
			start, sum = i, 0
		}
		sum = min(sum+n, 1<<60)
	}
	return append(groups, names[start:])
}
