package evaluate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/run/execute/op/bodies"
	"onnxquant/internal/run/execute/op/contrib"
	"onnxquant/internal/run/execute/op/elementwise"
	"onnxquant/internal/run/execute/op/images"
	"onnxquant/internal/run/execute/op/moves"
	"onnxquant/internal/run/execute/op/products"
	"onnxquant/internal/run/execute/op/reduce"
)

var tables = []op.Table{bodies.Operators, contrib.Operators, elementwise.Operators, images.Operators, moves.Operators, products.Operators, reduce.Operators}

// sameContrib are operators of com.microsoft with the name and meaning of ONNX's.
const sameContrib = " QuantizeLinear DequantizeLinear "

// lookUp finds an operator by its domain and name.
func lookUp(domain, name string) (op.Operator, bool) {
	key := name
	if domain != "" && domain != "ai.onnx" && !(domain == "com.microsoft" && strings.Contains(sameContrib, " "+name+" ")) {
		key = domain + ":" + name
	}
	for _, t := range tables {
		if found, ok := t[key]; ok {
			return found, true
		}
	}
	return op.Operator{}, false
}

// step is a node of a plan.
type step struct {
	node     *onnxpb.NodeProto
	operator op.Operator
	function *onnxpb.GraphProto // the body of a function, or nil
	opset    int64              // of the body
	refused  error              // why it cannot run, or nil
	reads    []string           // values from outside of it
	sum      *sum               // of a MatMul, or nil
}

// sum is an Add that alone reads a MatMul, and a stored tensor besides. Both are computed at once where nobody asks for
// the product itself, to the same bits.
type sum struct {
	step *step
	bias string
}

// plan is a graph as it is run.
type plan struct {
	steps  []step
	stored map[string]*onnxpb.TensorProto // initializers
	uses   map[string]int                 // readers of each value
	cycle  error
}

// plans has the plans of a model's graphs, and its functions.
type plans struct {
	graphs    map[*onnxpb.GraphProto]*plan
	functions map[string]*onnxpb.FunctionProto
	opset     int64
}

func newPlans(m *onnxpb.ModelProto) plans {
	p := plans{map[*onnxpb.GraphProto]*plan{}, map[string]*onnxpb.FunctionProto{}, opsetIn(m.OpsetImport, 1)}
	for _, f := range m.GetFunctions() {
		p.functions[functionKey(f.GetDomain(), f.GetName(), f.GetOverload())] = f
	}
	return p
}

func functionKey(domain, name, overload string) string {
	return strings.Join([]string{domain, name, overload}, "\x00")
}

// opsetIn returns the opset of ONNX among imports.
func opsetIn(imports []*onnxpb.OperatorSetIdProto, unset int64) int64 {
	for _, o := range imports {
		if o.GetDomain() == "" || o.GetDomain() == "ai.onnx" {
			return o.GetVersion()
		}
	}
	return unset
}

// plan returns the plan of a graph.
func (p *plans) plan(g *onnxpb.GraphProto) *plan {
	if made := p.graphs[g]; made != nil {
		return made
	}
	made := &plan{stored: map[string]*onnxpb.TensorProto{}, uses: map[string]int{}}
	for _, t := range g.GetInitializer() {
		made.stored[t.GetName()] = t
	}
	for _, o := range g.GetOutput() {
		made.uses[o.GetName()]++
	}
	for _, n := range g.GetNode() {
		s := p.step(n)
		for _, name := range s.reads {
			made.uses[name]++
		}
		made.steps = append(made.steps, s)
	}
	made.order()
	made.join()
	p.graphs[g] = made
	return made
}

// join finds the sums of products.
func (p *plan) join() {
	readers := map[string]*step{}
	for i := range p.steps {
		for _, name := range p.steps[i].reads {
			readers[name] = &p.steps[i]
		}
	}
	for i := range p.steps {
		n := p.steps[i].node
		if n.GetOpType() != "MatMul" || n.GetDomain() != "" || len(n.Output) != 1 || p.uses[n.Output[0]] != 1 {
			continue
		}
		reader := readers[n.Output[0]]
		if reader == nil || reader.node.GetOpType() != "Add" || reader.node.GetDomain() != "" || len(reader.node.Input) != 2 || reader.refused != nil {
			continue
		}
		other := reader.node.Input[0]
		if other == n.Output[0] {
			other = reader.node.Input[1]
		}
		if t := p.stored[other]; t != nil && len(t.GetDims()) == 1 && t.GetDataType() == int32(dtype.Float32) {
			p.steps[i].sum = &sum{reader, other}
		}
	}
}

// part returns the part of a plan that makes some values, from those that are given and what the graph has. The
// graph's own outputs have no readers there.
func (p *plan) part(values []string, given map[string]*execute.Tensor) *plan {
	needed := map[string]bool{}
	need := func(name string) {
		if given[name] == nil {
			needed[name] = true
		}
	}
	for _, name := range values {
		need(name)
	}
	some := &plan{stored: p.stored, uses: map[string]int{}, cycle: p.cycle}
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := p.steps[i]
		if !slices.ContainsFunc(s.node.Output, func(name string) bool { return needed[name] }) {
			continue
		}
		for _, name := range s.reads {
			need(name)
			some.uses[name]++
		}
		if s.sum != nil && !slices.ContainsFunc(some.steps, func(later step) bool { return later.node == s.sum.step.node }) {
			s.sum = nil
		}
		some.steps = append(some.steps, s)
	}
	slices.Reverse(some.steps)
	return some
}

// step prepares a node.
func (p *plans) step(n *onnxpb.NodeProto) step {
	s := step{node: n, reads: reads(n)}
	if f := p.functions[functionKey(n.GetDomain(), n.GetOpType(), n.GetOverload())]; f != nil {
		s.function, s.opset = called(f, n), opsetIn(f.OpsetImport, p.opset)
		return s
	}
	found, ok := lookUp(n.GetDomain(), n.GetOpType())
	s.operator = found
	if !ok {
		s.refused = op.Unsupported("this operator")
	}
	for _, a := range n.Attribute {
		if ok && !found.Takes(a.GetName()) {
			s.refused = op.Unsupported("attribute %s", strconv.Quote(a.GetName()))
		}
	}
	return s
}

// order moves steps behind those that make what they read.
func (p *plan) order() {
	made := map[string]bool{}
	for _, s := range p.steps {
		for _, name := range s.node.Output {
			made[name] = name != ""
		}
	}
	todo, ordered := p.steps, make([]step, 0, len(p.steps))
	for len(todo) > 0 {
		var later []step
		for _, s := range todo {
			if slices.ContainsFunc(s.reads, func(name string) bool { return made[name] }) {
				later = append(later, s)
				continue
			}
			ordered = append(ordered, s)
			for _, name := range s.node.Output {
				made[name] = false
			}
		}
		if len(later) == len(todo) {
			p.cycle = fmt.Errorf("%s is in a cycle, or reads a value of one", describe(later[0].node))
			break
		}
		todo = later
	}
	p.steps = ordered
}

// reads lists the values that a node and its subgraphs read from outside of the node.
func reads(n *onnxpb.NodeProto) []string {
	names := slices.DeleteFunc(slices.Clone(n.Input), func(name string) bool { return name == "" })
	for _, a := range n.Attribute {
		for _, g := range append([]*onnxpb.GraphProto{a.G}, a.Graphs...) {
			names = append(names, readsOf(g)...)
		}
	}
	return names
}

// readsOf lists the values that a graph reads from outside.
func readsOf(g *onnxpb.GraphProto) (names []string) {
	own := map[string]bool{}
	for _, in := range g.GetInput() {
		own[in.GetName()] = true
	}
	for _, t := range g.GetInitializer() {
		own[t.GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, name := range n.Output {
			own[name] = true
		}
	}
	add := func(name string) {
		if !own[name] {
			names = append(names, name)
		}
	}
	for _, n := range g.GetNode() {
		for _, name := range reads(n) {
			add(name)
		}
	}
	for _, o := range g.GetOutput() {
		add(o.GetName())
	}
	return names
}

// describe names a node for people.
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
