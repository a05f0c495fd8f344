package evaluate

import (
	"context"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// evaluator is a run of a model.
type evaluator struct {
	session *Session
	held    int // bytes of all values; values that share memory count twice
	budget  budget
	memory  memory
	sizes   map[string]int64 // of values of the main graph
	shapes  map[string][]int64

	progress func(done, total int64) // see runner
}

// deepest is how many graphs may run inside of each other.
const deepest = 60

// scope has the values of a running graph.
type scope struct {
	outer  *scope
	plan   *plan
	opset  int64
	depth  int
	main   bool
	values map[string]*execute.Tensor
	uses   map[string]int             // readers that have not run yet
	done   map[*onnxpb.NodeProto]bool // sums that were computed with their products
}

func (e *evaluator) newScope(outer *scope, g *onnxpb.GraphProto) *scope {
	return e.scopeOf(outer, e.session.plans.plan(g))
}

func (e *evaluator) scopeOf(outer *scope, p *plan) *scope {
	s := &scope{outer: outer, plan: p, opset: e.session.plans.opset, main: outer == nil, values: map[string]*execute.Tensor{}, uses: make(map[string]int, len(p.uses))}
	if outer != nil {
		s.opset, s.depth = outer.opset, outer.depth+1
	}
	for name, n := range p.uses {
		s.uses[name] = n
	}
	return s
}

// ready reports whether a value is known.
func (s *scope) ready(name string) bool {
	for ; s != nil; s = s.outer {
		if s.values[name] != nil || s.plan.stored[name] != nil {
			return true
		}
	}
	return false
}

func (e *evaluator) value(s *scope, name string) (*execute.Tensor, error) {
	for ; s != nil; s = s.outer {
		if t, ok := s.values[name]; ok {
			return t, nil
		}
		if t := s.plan.stored[name]; t != nil {
			return e.load(t)
		}
	}
	return nil, fmt.Errorf("there is no value %q", name)
}

// load reads a tensor from the file.
func (e *evaluator) load(t *onnxpb.TensorProto) (*execute.Tensor, error) {
	if kept := e.session.cache.tensors[t]; kept != nil {
		return kept, nil
	}
	v, err := e.read(t)
	if err == nil {
		e.session.cache.keep(t, v)
	}
	return v, err
}

func (e *evaluator) read(t *onnxpb.TensorProto) (*execute.Tensor, error) {
	v := &execute.Tensor{DType: dtype.DType(t.GetDataType()), Dims: t.GetDims()}
	if v.DType == dtype.String {
		for _, text := range t.GetStringData() {
			v.Text = append(v.Text, string(text))
		}
		return v, nil
	}
	p, err := e.session.model.Payload(t)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, op.Unsupported("tensor %q of type %v", t.GetName(), v.DType)
	}
	if err := e.budget.spend(workOfByteRead * float64(p.Size())); err != nil {
		return nil, err
	}
	v.Data = make([]byte, p.Size())
	if n, err := p.ReadAt(v.Data, 0); n < len(v.Data) {
		return nil, err
	}
	v.Data = execute.Unpack(v.DType, int(op.Product(v.Dims)), v.Data)
	return v, nil
}

// steps runs all nodes of a scope.
func (e *evaluator) steps(s *scope) error {
	if s.depth > deepest {
		return op.Unsupported("graphs within each other, %d deep", deepest)
	}
	for i := range s.plan.steps {
		if err := e.run(s, &s.plan.steps[i]); err != nil {
			return fmt.Errorf("%s: %w", describe(s.plan.steps[i].node), err)
		}
		if s.main && e.progress != nil && e.session.ctx.Err() == nil {
			e.progress(int64(i+1), int64(len(s.plan.steps)))
		}
	}
	return s.plan.cycle
}

// graph runs all nodes of a graph and returns its outputs.
func (e *evaluator) graph(s *scope, g *onnxpb.GraphProto) ([]*execute.Tensor, error) {
	if err := e.steps(s); err != nil {
		return nil, err
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

// run runs a node.
func (e *evaluator) run(s *scope, n *step) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = op.Unsupported("%v", p)
		}
	}()
	if e.session.ctx.Err() != nil {
		return context.Cause(e.session.ctx)
	}
	if n.refused != nil {
		return n.refused
	}
	if s.done[n.node] {
		return nil
	}
	before := e.memory.begin()
	defer func() { e.memory.end(before) }()
	if err := e.budget.spend(workOfNode); err != nil {
		return err
	}
	in, err := e.inputs(s, n)
	if err != nil {
		return err
	}
	var results []*execute.Tensor
	if n.function != nil {
		results, err = e.function(s, n, in)
	} else {
		c := &op.Call{Host: &host{e, s}, Node: n.node, In: in, Opset: s.opset}
		if c.Last, err = e.last(s, n, in); err != nil {
			return err
		}
		if results, err = n.operator.Run(c); err == nil && c.Last != nil {
			return e.keepSum(s, n, results)
		}
	}
	if err != nil {
		return err
	}
	return e.keep(s, n, results)
}

// last returns what a product and its sum add to each row, or nil if they are computed one after another.
func (e *evaluator) last(s *scope, n *step, in []*execute.Tensor) (*execute.Tensor, error) {
	if n.sum == nil || s.uses[n.node.Output[0]] != 1 || e.session.runner.arithmetic != nil {
		return nil, nil
	}
	a, b := in[0], in[1]
	if a.DType != dtype.Float32 || b.DType != a.DType || len(a.Dims) == 0 || len(b.Dims) < 2 {
		return nil, nil
	}
	t, err := e.value(s, n.sum.bias)
	if err != nil || t == nil || t.DType != a.DType || len(t.Dims) != 1 || t.Dims[0] != b.Dims[len(b.Dims)-1] {
		return nil, err
	}
	return t, nil
}

// keepSum stores the result of a product and its sum as that of the sum.
func (e *evaluator) keepSum(s *scope, product *step, results []*execute.Tensor) error {
	name := product.node.Output[0]
	if s.main {
		e.sizes[name], e.shapes[name] = int64(bytesOf(results[0])), results[0].Dims
	}
	if s.done == nil {
		s.done = map[*onnxpb.NodeProto]bool{}
	}
	s.done[product.sum.step.node] = true
	e.forget(s, product)
	return e.keep(s, product.sum.step, results)
}

// inputs returns the values of a node's inputs, nil for absent ones. The first required
// ones must be present.
func (e *evaluator) inputs(s *scope, n *step) ([]*execute.Tensor, error) {
	in := make([]*execute.Tensor, len(n.node.Input))
	for i, name := range n.node.Input {
		if name == "" {
			continue
		}
		if !s.knows(name) {
			return nil, fmt.Errorf("it reads %q, which has no value", name)
		}
		var err error
		if in[i], err = e.value(s, name); err != nil {
			return nil, err
		}
	}
	required := n.operator.Inputs
	if len(in) < required {
		return nil, fmt.Errorf("it has %d inputs, want %d", len(in), required)
	}
	if slices.Contains(in[:required], nil) {
		return nil, op.ErrMissingInput
	}
	return in, nil
}

// knows reports whether a name has a value, which may be nil: that of an absent optional.
func (s *scope) knows(name string) bool {
	for ; s != nil; s = s.outer {
		if _, ok := s.values[name]; ok || s.plan.stored[name] != nil {
			return true
		}
	}
	return false
}

// function runs the body of a function, which sees nothing of the graph around it.
func (e *evaluator) function(s *scope, n *step, in []*execute.Tensor) ([]*execute.Tensor, error) {
	inner := e.newScope(nil, n.function)
	inner.main, inner.opset, inner.depth = false, n.opset, s.depth+1
	return e.inside(inner, n.function, in)
}

// inside runs a graph inside of a node. Inputs that are not given are absent.
func (e *evaluator) inside(s *scope, g *onnxpb.GraphProto, in []*execute.Tensor) ([]*execute.Tensor, error) {
	if len(in) > len(g.GetInput()) {
		return nil, fmt.Errorf("%d inputs for a body that takes %d", len(in), len(g.GetInput()))
	}
	held := e.held
	for i, name := range g.GetInput() {
		var t *execute.Tensor
		if i < len(in) {
			t = in[i]
		}
		e.set(s, name.GetName(), t)
	}
	outputs, err := e.graph(s, g)
	for _, t := range s.values { // what is left goes with the scope
		e.memory.leave(t)
	}
	e.held = held
	return outputs, err
}

// set gives a name to a value.
func (e *evaluator) set(s *scope, name string, t *execute.Tensor) {
	e.drop(s, name)
	s.values[name] = t
	if t != nil {
		e.held += bytesOf(t)
		e.memory.use(t)
	}
}

// keep stores the outputs of a node, and drops values that nobody will read.
func (e *evaluator) keep(s *scope, n *step, results []*execute.Tensor) error {
	for i, name := range n.node.Output {
		if name == "" {
			continue
		}
		if i >= len(results) {
			return op.Unsupported("output %d", i)
		}
		e.set(s, name, results[i])
		if results[i] == nil {
			continue
		}
		if s.main {
			e.sizes[name], e.shapes[name] = int64(bytesOf(results[i])), results[i].Dims
		}
		if err := e.budget.spend(workOfMove * float64(results[i].Len())); err != nil {
			return err
		}
	}
	e.forget(s, n)
	return e.checkRoom(dtype.Uint8, nil)
}

// forget drops the inputs of n that no later node reads, and the outputs that no node
// reads.
func (e *evaluator) forget(s *scope, n *step) {
	for _, name := range n.reads {
		if s.uses[name]--; s.uses[name] <= 0 {
			e.drop(s, name)
		}
	}
	for _, name := range n.node.Output {
		if s.uses[name] == 0 {
			e.drop(s, name)
		}
	}
}

func (e *evaluator) drop(s *scope, name string) {
	if t := s.values[name]; t != nil {
		e.held -= bytesOf(t)
		delete(s.values, name)
		e.memory.drop(t)
	}
}

// bytesOf is the memory of a value.
func bytesOf(t *execute.Tensor) int {
	n := len(t.Data)
	for _, text := range t.Text {
		n += 16 + len(text)
	}
	for _, item := range t.List {
		n += bytesOf(item)
	}
	return n
}

// host is the op.Host of a node.
type host struct {
	*evaluator
	scope *scope
}

func (h *host) Memory(n int) []byte                                 { return h.memory.make(n) }
func (h *host) Spend(work float64) error                            { return h.budget.spend(work) }
func (h *host) Room(typ dtype.DType, dims []int64) error            { return h.checkRoom(typ, dims) }
func (h *host) Load(t *onnxpb.TensorProto) (*execute.Tensor, error) { return h.load(t) }
func (h *host) Arithmetic() op.Arithmetic                           { return h.session.runner.arithmetic }
func (h *host) Context() context.Context                            { return h.session.ctx }

// Body runs a graph inside of the scope of the node.
func (h *host) Body(g *onnxpb.GraphProto, inputs []*execute.Tensor) ([]*execute.Tensor, error) {
	return h.inside(h.newScope(h.scope, g), g, inputs)
}
