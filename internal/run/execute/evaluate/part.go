package evaluate

import (
	"maps"
	"slices"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// Node is a node of the main graph.
type Node struct {
	*onnxpb.NodeProto
	Reads []string // values from outside of it
}

// Nodes lists the nodes of the main graph in the order in which they run.
func (s *Session) Nodes() (nodes []Node) {
	for _, n := range s.plans.plan(s.model.Proto.GetGraph()).steps {
		nodes = append(nodes, Node{n.node, n.reads})
	}
	return nodes
}

// Graph is the main graph.
func (s *Session) Graph() *onnxpb.GraphProto { return s.model.Proto.GetGraph() }

// Part computes some values from others, which take the place of what the graph makes or stores under their
// names. Only the nodes that are needed run.
func (s *Session) Part(given map[string]*execute.Tensor, values []string) ([]*execute.Tensor, error) {
	return wait(s.ctx, func() ([]*execute.Tensor, error) {
		e := s.evaluator()
		defer func() { s.sizes = e.sizes }()
		top := e.scopeOf(nil, s.plans.plan(s.Graph()).part(values, given))
		maps.Copy(top.values, given)
		for name := range given {
			top.uses[name]++ // it stays
		}
		for _, name := range values {
			top.uses[name]++
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
			results[i] = t
		}
		return results, nil
	})
}

// Call is a node without graphs inside, with inputs that the caller gives.
func (s *Session) Call(n *onnxpb.NodeProto, in []*execute.Tensor) *op.Call {
	return &op.Call{Host: &host{s.evaluator(), &scope{plan: &plan{}}}, Node: n, In: slices.Clone(in), Opset: s.plans.opset}
}

// Operate runs the operator of a call.
func Operate(c *op.Call) ([]*execute.Tensor, error) {
	found, ok := lookUp(c.Node.GetDomain(), c.Node.GetOpType())
	if !ok {
		return nil, op.Unsupported("operator %s", c.Node.GetOpType())
	}
	return found.Run(c)
}
