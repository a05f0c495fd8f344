package evaluate

import (
	"context"
	"fmt"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

// Session is the execute.Session of this package.
type Session struct {
	runner runner
	ctx    context.Context
	model  *modelfile.Model
	plans  plans
	cache  cache
	free   freeList
	work   float64          // of the last run
	sizes  map[string]int64 // bytes of the values of the graph's nodes in the last run
	shapes map[string][]int64
}

// Sizes returns the bytes of the values that the nodes of the main graph made in the last run.
func (s *Session) Sizes() map[string]int64 { return s.sizes }

// Shapes returns the shapes of these values.
func (s *Session) Shapes() map[string][]int64 { return s.shapes }

// Work returns the work of the last run, about in multiply-adds.
func (s *Session) Work() float64 { return s.work }

// Open opens the model at path for the engine Go. The end of the context ends its runs.
func Open(ctx context.Context, path string) (*Session, error) {
	return OpenReporting(ctx, path, nil)
}

// OpenReporting is Open with the progress of runs, in nodes of the graph. It may be nil.
func OpenReporting(ctx context.Context, path string, progress func(done, total int64)) (*Session, error) {
	return runner{progress: progress}.open(ctx, path)
}

func (r runner) open(ctx context.Context, path string) (*Session, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	return &Session{runner: r, ctx: ctx, model: m, plans: newPlans(m.Proto), cache: cache{tensors: map[*onnxpb.TensorProto]*execute.Tensor{}}}, nil
}

// Close implements execute.Session.
func (s *Session) Close() { s.model.Close() }

// Run implements execute.Session.
func (s *Session) Run(inputs []*execute.Tensor, values ...string) ([]*execute.Tensor, error) {
	return wait(s.ctx, func() ([]*execute.Tensor, error) { return s.run(inputs, values...) })
}

func (s *Session) run(inputs []*execute.Tensor, values ...string) ([]*execute.Tensor, error) {
	g := s.model.Proto.GetGraph()
	p := s.plans.plan(g)
	if len(values) > 0 {
		p = p.part(values, nil)
	} else {
		for _, o := range g.GetOutput() {
			values = append(values, o.GetName())
		}
	}
	e := s.evaluator()
	for _, t := range inputs {
		e.held += bytesOf(t)
	}
	if s.runner.bounded {
		e.budget = budgetFor(float64(s.model.Size()), float64(e.held))
	}
	defer func() { s.work, s.sizes, s.shapes = e.budget.spent, e.sizes, e.shapes }()
	top := e.scopeOf(nil, p)
	for _, name := range values {
		top.uses[name]++
	}
	for _, in := range g.GetInput() {
		if in.GetType().GetOptionalType() != nil {
			top.values[in.GetName()] = nil // absent, if it is not given
		}
	}
	for _, t := range inputs {
		top.values[t.Name] = t
	}
	if err := e.steps(top); err != nil {
		return nil, err
	}
	results := make([]*execute.Tensor, len(values))
	for i, name := range values {
		t, err := e.value(top, name)
		if err != nil {
			return nil, err
		}
		named := *t
		named.Name = name
		results[i] = &named
	}
	return results, nil
}

func (s *Session) evaluator() *evaluator {
	return &evaluator{session: s, budget: unbounded(), sizes: map[string]int64{}, shapes: map[string][]int64{}, progress: s.runner.progress,
		memory: memory{free: &s.free, owned: map[*byte]*block{}}}
}

// Node runs the node of the main graph that makes a value. values has the values that it reads, by name; others are
// computed from stored tensors and values.
func (s *Session) Node(value string, values map[string]*execute.Tensor) (*execute.Tensor, error) {
	return wait(s.ctx, func() (*execute.Tensor, error) { return s.node(value, values) })
}

func (s *Session) node(value string, values map[string]*execute.Tensor) (*execute.Tensor, error) {
	g := s.model.Proto.GetGraph()
	e := s.evaluator()
	top := e.newScope(nil, g)
	for name, t := range values {
		top.values[name] = t
	}
	delete(top.values, value)
	makers := map[string]*step{}
	for i := range top.plan.steps {
		for _, name := range top.plan.steps[i].node.Output {
			makers[name] = &top.plan.steps[i]
		}
	}
	if err := e.need(top, makers, value, 0); err != nil {
		return nil, err
	}
	return e.value(top, value)
}

// need runs the nodes that a value needs, if it is not known.
func (e *evaluator) need(s *scope, makers map[string]*step, value string, depth int) error {
	const deepest = 100
	n := makers[value]
	switch {
	case value == "" || s.ready(value):
		return nil
	case n == nil || depth > deepest:
		return fmt.Errorf("there is no value %q", value)
	}
	for _, name := range n.reads {
		s.uses[name]++ // it stays
		if err := e.need(s, makers, name, depth+1); err != nil {
			return err
		}
	}
	for _, name := range n.node.Output {
		s.uses[name]++
	}
	return e.run(s, n)
}

// cache has tensors that were read from the file, up to a limit.
type cache struct {
	tensors map[*onnxpb.TensorProto]*execute.Tensor
	bytes   int
}

// maxKept limits the bytes of a model's tensors that a session keeps.
const maxKept = 128 << 20

func (c *cache) keep(t *onnxpb.TensorProto, v *execute.Tensor) {
	if n := bytesOf(v); c.bytes+n <= maxKept {
		c.tensors[t] = v
		c.bytes += n
	}
}
