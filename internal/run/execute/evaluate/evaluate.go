// Package evaluate runs ONNX models in pure Go.
//
// Its runners open a model and return an execute.Session, which the caller closes. A session walks the
// graph node by node. The package itself broadcasts, transposes, pads, slices, gathers and splits
// convolutions into groups. The rest of floating-point arithmetic is behind one interface: MatMul,
// Conv, MaxPool, Add, Sub, Mul, Div and functions such as Exp. The Go engine implements it with
// gonum's matrix products. Builds with the tag onnxgo have a second engine with gorgonnx, the backend
// of onnx-go.
//
// The package supports the operators of small perceptrons, convolutional networks and transformers. An
// unknown operator or attribute is an error that names the node and wraps execute.ErrUnsupported.
// Float16 and bfloat16 nodes compute in float32 and round their outputs.
//
// A node loads the initializers that it reads. Values are dropped after their last reader.
package evaluate

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
)

type runner struct {
	arithmetic arithmetic
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
var Go execute.Runner = runner{arithmetic: native{}, name: "pure Go"}

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

// Session is the execute.Session of this package.
type Session struct {
	runner runner
	ctx    context.Context
	model  *modelfile.Model
	work   float64          // of the last run
	sizes  map[string]int64 // bytes of the values of the graph's nodes in the last run
	makers map[string]*onnxpb.NodeProto
}

// Sizes returns the bytes of the values that the nodes of the main graph made in the last run.
func (s *Session) Sizes() map[string]int64 { return s.sizes }

// Work returns the work of the last run, about in multiply-adds.
func (s *Session) Work() float64 { return s.work }

// Open opens the model at path for the engine Go. The end of the context ends its runs.
func Open(ctx context.Context, path string) (*Session, error) {
	return runner{arithmetic: native{}}.open(ctx, path)
}

func (r runner) open(ctx context.Context, path string) (*Session, error) {
	m, err := modelfile.Open(path)
	if err != nil {
		return nil, err
	}
	return &Session{runner: r, ctx: ctx, model: m}, nil
}

// Close implements execute.Session.
func (s *Session) Close() { s.model.Close() }

// Run implements execute.Session.
func (s *Session) Run(inputs []*execute.Tensor, values ...string) ([]*execute.Tensor, error) {
	return wait(s.ctx, func() ([]*execute.Tensor, error) { return s.run(inputs, values...) })
}

func (s *Session) run(inputs []*execute.Tensor, values ...string) ([]*execute.Tensor, error) {
	g := s.model.Proto.GetGraph()
	if len(values) == 0 {
		for _, o := range g.GetOutput() {
			values = append(values, o.GetName())
		}
	}
	e := s.evaluator()
	for _, t := range inputs {
		e.held += len(t.Data)
	}
	if s.runner.bounded {
		e.budget = budgetFor(float64(s.model.Size()), float64(e.held))
	}
	defer func() { s.work, s.sizes = e.budget.spent, e.sizes }()
	top := newScope(nil, g)
	for _, name := range values {
		top.uses[name]++
	}
	for _, t := range inputs {
		top.values[t.Name] = t
	}
	if _, err := e.graph(top, g); err != nil {
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
	e := &evaluator{ctx: s.ctx, model: s.model, opset: 1, budget: unbounded(), sizes: map[string]int64{}, progress: s.runner.progress}
	e.arithmetic = metered{s.runner.arithmetic, &e.budget}
	for _, o := range s.model.Proto.OpsetImport {
		if o.GetDomain() == "" || o.GetDomain() == "ai.onnx" {
			e.opset = o.GetVersion()
		}
	}
	return e
}

type evaluator struct {
	arithmetic
	ctx    context.Context
	model  *modelfile.Model
	opset  int64
	held   int // bytes of all values; values that share memory count twice
	budget budget
	sizes  map[string]int64 // of values of the main graph

	progress func(done, total int64) // see runner
}

// scope has the values of a running graph.
type scope struct {
	outer  *scope
	values map[string]*execute.Tensor
	stored map[string]*onnxpb.TensorProto // initializers
	uses   map[string]int                 // readers that have not run yet
}

func newScope(outer *scope, g *onnxpb.GraphProto) *scope {
	s := &scope{outer, map[string]*execute.Tensor{}, map[string]*onnxpb.TensorProto{}, map[string]int{}}
	for _, t := range g.GetInitializer() {
		s.stored[t.GetName()] = t
	}
	for _, n := range g.GetNode() {
		for _, name := range reads(n) {
			s.uses[name]++
		}
	}
	for _, o := range g.GetOutput() {
		s.uses[o.GetName()]++
	}
	return s
}

// reads lists the values that a node and its subgraphs read.
func reads(n *onnxpb.NodeProto) []string {
	names := slices.Clone(n.Input)
	for _, a := range n.Attribute {
		if a.G == nil {
			continue
		}
		for _, inner := range a.G.Node {
			names = append(names, reads(inner)...)
		}
		for _, o := range a.G.Output {
			names = append(names, o.GetName())
		}
	}
	return names
}

// ready reports whether a value is known.
func (s *scope) ready(name string) bool {
	for ; s != nil; s = s.outer {
		if s.values[name] != nil || s.stored[name] != nil {
			return true
		}
	}
	return false
}

func (e *evaluator) value(s *scope, name string) (*execute.Tensor, error) {
	for ; s != nil; s = s.outer {
		if t := s.values[name]; t != nil {
			return t, nil
		}
		if t := s.stored[name]; t != nil {
			return e.load(t)
		}
	}
	return nil, fmt.Errorf("there is no value %q", name)
}

// load reads a tensor from the file.
func (e *evaluator) load(t *onnxpb.TensorProto) (*execute.Tensor, error) {
	p, err := e.model.Payload(t)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, unsupported("tensor %q of type STRING", t.GetName())
	}
	v := &execute.Tensor{DType: dtype.DType(t.GetDataType()), Dims: t.GetDims()}
	if v.DType.Bits() < 8 {
		return nil, unsupported("elements of type %v", v.DType)
	}
	if err := e.budget.spend(workOfByteRead * float64(p.Size())); err != nil {
		return nil, err
	}
	v.Data = make([]byte, p.Size())
	if n, err := p.ReadAt(v.Data, 0); n < len(v.Data) {
		return nil, err
	}
	return v, nil
}

// graph runs all nodes of a graph and returns its outputs.
func (e *evaluator) graph(s *scope, g *onnxpb.GraphProto) ([]*execute.Tensor, error) {
	done := int64(0)
	for todo := g.GetNode(); len(todo) > 0; {
		var later []*onnxpb.NodeProto
		if e.ctx.Err() != nil {
			return nil, context.Cause(e.ctx)
		}
		for _, n := range todo {
			if !e.runnable(s, n) {
				later = append(later, n)
				continue
			}
			if err := e.node(s, n); err != nil {
				return nil, fmt.Errorf("%s: %w", describe(n), err)
			}
			if done++; s.outer == nil && e.progress != nil && e.ctx.Err() == nil {
				e.progress(done, int64(len(g.GetNode())))
			}
		}
		if len(later) == len(todo) {
			return nil, e.stuck(s, later)
		}
		todo = later
	}
	var outputs []*execute.Tensor
	for _, o := range g.GetOutput() {
		t, err := e.value(s, o.GetName())
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, t)
	}
	return outputs, nil
}

// stuck says why none of the nodes can run.
func (e *evaluator) stuck(s *scope, nodes []*onnxpb.NodeProto) error {
	made := map[string]bool{}
	for _, n := range nodes {
		for _, name := range n.Output {
			made[name] = true
		}
	}
	for _, n := range nodes {
		for _, name := range reads(n) {
			if name != "" && !made[name] && !s.ready(name) && !makes(n, name) {
				return fmt.Errorf("%s reads %q, which has no value", describe(n), name)
			}
		}
	}
	return fmt.Errorf("%s is in a cycle, or reads a value of one", describe(nodes[0]))
}

func (e *evaluator) runnable(s *scope, n *onnxpb.NodeProto) bool {
	return !slices.ContainsFunc(reads(n), func(name string) bool {
		return name != "" && !s.ready(name) && !makes(n, name)
	})
}

// makes reports whether a value is defined in a subgraph of n: an input, a stored value or the output of a node.
func makes(n *onnxpb.NodeProto, name string) bool {
	for _, a := range n.Attribute {
		if slices.ContainsFunc(a.G.GetInput(), func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == name }) {
			return true
		}
		for _, inner := range a.G.GetNode() {
			if slices.Contains(inner.Output, name) || makes(inner, name) {
				return true
			}
		}
		for _, t := range a.G.GetInitializer() {
			if t.GetName() == name {
				return true
			}
		}
	}
	return false
}

func (e *evaluator) node(s *scope, n *onnxpb.NodeProto) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", execute.ErrUnsupported, p)
		}
	}()
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	op, ok := operators[n.GetOpType()]
	if !ok || n.GetDomain() != "" && n.GetDomain() != "ai.onnx" && !(n.GetDomain() == "com.microsoft" && contrib[n.GetOpType()]) {
		return unsupported("this operator")
	}
	for _, a := range n.Attribute {
		if !slices.Contains(op.attributes, a.GetName()) {
			return unsupported("attribute %s", strconv.Quote(a.GetName()))
		}
	}
	if err := e.budget.spend(workOfNode); err != nil {
		return err
	}
	c := &call{evaluator: e, scope: s, node: n}
	if c.in, err = e.inputs(s, n, op.inputs); err != nil {
		return err
	}
	results, err := op.run(c)
	if err != nil {
		return err
	}
	return e.keep(s, n, results)
}

// inputs returns the values of a node's inputs, nil for absent ones. The first required
// ones must be present.
func (e *evaluator) inputs(s *scope, n *onnxpb.NodeProto, required int) ([]*execute.Tensor, error) {
	in := make([]*execute.Tensor, len(n.Input))
	for i, name := range n.Input {
		if name == "" {
			continue
		}
		var err error
		if in[i], err = e.value(s, name); err != nil {
			return nil, err
		}
	}
	if len(in) < required {
		return nil, fmt.Errorf("it has %d inputs, want %d", len(in), required)
	}
	if slices.Contains(in[:required], nil) {
		return nil, errMissingInput
	}
	return in, nil
}

// keep stores the outputs of a node, and drops values that nobody will read.
func (e *evaluator) keep(s *scope, n *onnxpb.NodeProto, results []*execute.Tensor) error {
	for i, name := range n.Output {
		if name == "" {
			continue
		}
		if i >= len(results) {
			return unsupported("output %d", i)
		}
		e.drop(s, name)
		s.values[name] = results[i]
		if s.outer == nil {
			e.sizes[name] = int64(len(results[i].Data))
		}
		e.held += len(results[i].Data)
		if err := e.budget.spend(workOfMove * float64(results[i].Len())); err != nil {
			return err
		}
	}
	e.forget(s, n)
	return e.checkRoom(dtype.Uint8, nil)
}

// forget drops the inputs of n that no later node reads, and the outputs that no node
// reads.
func (e *evaluator) forget(s *scope, n *onnxpb.NodeProto) {
	for _, name := range reads(n) {
		if s.uses[name]--; s.uses[name] <= 0 {
			e.drop(s, name)
		}
	}
	for _, name := range n.Output {
		if s.uses[name] == 0 {
			e.drop(s, name)
		}
	}
}

func (e *evaluator) drop(s *scope, name string) {
	if t := s.values[name]; t != nil {
		e.held -= len(t.Data)
		delete(s.values, name)
	}
}

func describe(n *onnxpb.NodeProto) string {
	name := n.GetName()
	if name == "" && len(n.Output) > 0 {
		name = n.Output[0]
	}
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return fmt.Sprintf("%s node %s", n.GetOpType(), strconv.Quote(name))
}

// Node runs the node of the main graph that makes a value. values has the values that it reads, by name; others are
// computed from stored tensors and values.
func (s *Session) Node(value string, values map[string]*execute.Tensor) (*execute.Tensor, error) {
	return wait(s.ctx, func() (*execute.Tensor, error) { return s.node(value, values) })
}

func (s *Session) node(value string, values map[string]*execute.Tensor) (*execute.Tensor, error) {
	g := s.model.Proto.GetGraph()
	e := s.evaluator()
	top := newScope(nil, g)
	for name, t := range values {
		top.values[name] = t
	}
	delete(top.values, value)
	if s.makers == nil {
		s.makers = map[string]*onnxpb.NodeProto{}
		for _, n := range g.GetNode() {
			for _, name := range n.Output {
				s.makers[name] = n
			}
		}
	}
	if err := e.need(top, s.makers, value, 0); err != nil {
		return nil, err
	}
	return e.value(top, value)
}

// need runs the nodes that a value needs, if it is not known.
func (e *evaluator) need(s *scope, makers map[string]*onnxpb.NodeProto, value string, depth int) error {
	const deepest = 100
	n := makers[value]
	switch {
	case value == "" || s.ready(value):
		return nil
	case n == nil || depth > deepest:
		return fmt.Errorf("there is no value %q", value)
	}
	for _, name := range reads(n) {
		s.uses[name]++ // it stays
		if makes(n, name) {
			continue
		}
		if err := e.need(s, makers, name, depth+1); err != nil {
			return err
		}
	}
	for _, name := range n.Output {
		s.uses[name]++
	}
	return e.node(s, n)
}
