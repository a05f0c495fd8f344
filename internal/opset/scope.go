package opset

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/onnxpb"
)

// A raiser raises one model.
type raiser struct {
	to        int64
	fresh     func(hint string) string
	graphs    map[*onnxpb.GraphProto]*scope
	functions map[*onnxpb.FunctionProto]*scope
	missing   map[string]string          // value that no node makes yet → a value of the same type and rank
	local     map[string]bool            // operators of ai.onnx that the model's functions redefine
	enlarging map[*onnxpb.NodeProto]bool // Resize nodes that were Upsample
	depth     int                        // of the current search for a type or rank
}

// A scope is a graph or a function body.
type scope struct {
	model    *raiser
	graph    *onnxpb.GraphProto    // nil for a function
	function *onnxpb.FunctionProto // nil for a graph
	outer    *scope
	nodes    []*onnxpb.NodeProto // after the changes so far

	owned map[*onnxpb.NodeProto]bool // nodes that may be changed: copies and new ones

	initializers []*onnxpb.TensorProto // to add to a graph
	leading      []*onnxpb.NodeProto   // Constant nodes to add at the start of a function
	constants    map[string]string     // names of both, by content

	facts *facts
}

func newRaiser(m *onnxpb.ModelProto, to int64, fresh func(string) string) *raiser {
	r := &raiser{
		to:        to,
		fresh:     fresh,
		graphs:    map[*onnxpb.GraphProto]*scope{},
		functions: map[*onnxpb.FunctionProto]*scope{},
		local:     map[string]bool{},
		enlarging: map[*onnxpb.NodeProto]bool{},
	}
	for _, f := range m.Functions {
		if isDefault(f.GetDomain()) {
			r.local[f.GetName()] = true
		}
	}
	return r
}

// scope returns the scope of a graph. The first call creates it.
func (r *raiser) scope(g *onnxpb.GraphProto, outer *scope) *scope {
	s := r.graphs[g]
	if s == nil {
		s = newScope(r, outer)
		s.graph, s.nodes = g, g.GetNode()
		r.graphs[g] = s
	}
	return s
}

func newScope(r *raiser, outer *scope) *scope {
	return &scope{
		model:     r,
		outer:     outer,
		owned:     map[*onnxpb.NodeProto]bool{},
		constants: map[string]string{},
	}
}

// noOpset stands for a missing import of ai.onnx.
const noOpset = math.MinInt64

// raise raises a scope and its subgraphs from one opset to r.to.
func (r *raiser) raise(s *scope, from int64) error {
	if from < oldest && from != noOpset {
		return fmt.Errorf("opset %d is older than %d, the first one", from, oldest)
	}
	if err := s.defined(from); err != nil {
		return err
	}
	if from == noOpset {
		return nil // defined has found no node of ai.onnx
	}
	for version := from + 1; version <= r.to; version++ {
		if err := s.step(version); err != nil {
			return err
		}
	}
	return nil
}

// raiseFunction raises a function of the model. It leaves a function as it is if all operators have
// the same definition at both opsets and the function is not growing.
func (r *raiser) raiseFunction(f *onnxpb.FunctionProto, from int64, growing bool) error {
	s := newScope(r, nil)
	s.function, s.nodes = f, f.GetNode()
	if !growing && s.same(from) {
		return nil
	}
	r.functions[f] = s
	return r.raise(s, from)
}

// defined returns an error for the first node whose operator is not defined at an opset.
func (s *scope) defined(opset int64) error {
	for _, n := range s.nodes {
		if op := n.GetOpType(); s.inDefaultDomain(n) && (opset == noOpset || definition(op, opset) == 0) {
			reason := fmt.Sprintf("is not defined at opset %d of ai.onnx", opset)
			switch {
			case opset == noOpset:
				reason = "the model does not import ai.onnx"
			case operators[op].versions == nil:
				reason = "is no operator of ai.onnx, so its meaning at another opset is unknown"
			}
			return &Error{Op: op, Node: label(n), Reason: reason}
		}
		for _, g := range subgraphs(n) {
			if err := s.model.scope(g, s).defined(opset); err != nil {
				return err
			}
		}
	}
	return nil
}

// same reports whether the operators of the scope have the same definitions at opset and
// at s.to.
func (s *scope) same(opset int64) bool {
	for _, n := range s.nodes {
		if op := n.GetOpType(); s.inDefaultDomain(n) && definition(op, opset) != definition(op, s.model.to) {
			return false
		}
		for _, g := range subgraphs(n) {
			if !s.model.scope(g, s).same(opset) {
				return false
			}
		}
	}
	return true
}

// step adapts the nodes of the scope to the next opset, subgraphs first.
func (s *scope) step(version int64) error {
	nodes := make([]*onnxpb.NodeProto, 0, len(s.nodes))
	for _, n := range s.nodes {
		for _, g := range subgraphs(n) {
			if err := s.model.scope(g, s).step(version); err != nil {
				return err
			}
		}
		adapt := adapterOf(n.GetOpType(), version)
		if adapt == nil || !s.inDefaultDomain(n) {
			nodes = append(nodes, n)
			continue
		}
		if len(n.GetOutput()) == 0 {
			return &Error{Op: n.GetOpType(), Node: label(n), Step: version, Reason: "it has no output"}
		}
		e := &edit{scope: s, version: version, node: s.writable(n)}
		if err := adapt(e); err != nil {
			return &Error{Op: n.GetOpType(), Node: label(n), Step: version, Reason: err.Error()}
		}
		nodes = append(nodes, e.before...)
		nodes = append(nodes, e.node)
		nodes = append(nodes, e.after...)
	}
	s.nodes = nodes
	return nil
}

// isStandard reports whether a node is an operator of ai.onnx, at its opset or in the domain Raised.
func (s *scope) isStandard(n *onnxpb.NodeProto) bool {
	return s.inDefaultDomain(n) || n.GetDomain() == Raised
}

// inDefaultDomain reports whether a node's operator is one of ai.onnx, and not a function
// of the model.
func (s *scope) inDefaultDomain(n *onnxpb.NodeProto) bool {
	return isDefault(n.GetDomain()) && !s.model.local[n.GetOpType()]
}

// writable returns the node if it may be changed, else a copy.
func (s *scope) writable(n *onnxpb.NodeProto) *onnxpb.NodeProto {
	if s.owned[n] {
		return n
	}
	c := &onnxpb.NodeProto{}
	assign(c, n)
	c.Input, c.Output, c.Attribute = slices.Clone(n.Input), slices.Clone(n.Output), slices.Clone(n.Attribute)
	s.owned[c] = true
	return c
}

// commit puts the changed nodes into the model.
func (r *raiser) commit() {
	for _, s := range r.graphs {
		if len(s.owned) == 0 {
			continue // nothing changed
		}
		s.graph.Node = s.finished()
		s.graph.Initializer = append(s.graph.Initializer, s.initializers...)
	}
	for f, s := range r.functions {
		f.Node = s.finished()
		f.OpsetImport = withDefault(f.OpsetImport, r.to)
	}
}

// finished returns the nodes of the scope.
func (s *scope) finished() []*onnxpb.NodeProto { return slices.Concat(s.leading, s.nodes) }

// assign copies all fields of src to dst, also unknown ones. The copy is shallow.
func assign(dst, src *onnxpb.NodeProto) {
	proto.Reset(dst)
	d, s := dst.ProtoReflect(), src.ProtoReflect()
	s.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		d.Set(f, v)
		return true
	})
	d.SetUnknown(s.GetUnknown())
}

// subgraphs returns the graphs among a node's attributes.
func subgraphs(n *onnxpb.NodeProto) []*onnxpb.GraphProto {
	var gs []*onnxpb.GraphProto
	for _, a := range n.GetAttribute() {
		if a.GetG() != nil {
			gs = append(gs, a.G)
		}
		gs = append(gs, a.GetGraphs()...)
	}
	return gs
}

// label names a node for messages: by its own name or, if it has none, by its first output.
func label(n *onnxpb.NodeProto) string {
	if n.GetName() != "" || len(n.GetOutput()) == 0 {
		return n.GetName()
	}
	return n.Output[0]
}
