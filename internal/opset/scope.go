package opset

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/onnxpb"
)

// A raiser holds the work on one model.
type raiser struct {
	to        int64
	fresh     func(hint string) string
	graphs    map[*onnxpb.GraphProto]*scope
	functions map[*onnxpb.FunctionProto]*scope
	local     map[string]bool            // operators of ai.onnx that the model's functions redefine
	enlarging map[*onnxpb.NodeProto]bool // Resize nodes that were Upsample
	depth     int                        // of the search for a type or rank under way
}

// A scope is a graph or a function body, whose nodes it holds as they will be.
type scope struct {
	*raiser
	graph    *onnxpb.GraphProto // nil if it is a function's
	function *onnxpb.FunctionProto
	outer    *scope
	nodes    []*onnxpb.NodeProto

	// origin holds the nodes that are ours to change: copies, and of what, or
	// new ones.
	origin map[*onnxpb.NodeProto]*onnxpb.NodeProto

	initializers []*onnxpb.TensorProto // to be added to a graph
	leading      []*onnxpb.NodeProto   // to be put first in a function
	constants    map[string]string     // names of the values of both by content

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

// scope returns the scope of a graph, making it at the first call.
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
		raiser:    r,
		outer:     outer,
		origin:    map[*onnxpb.NodeProto]*onnxpb.NodeProto{},
		constants: map[string]string{},
	}
}

// noOpset stands for a missing import of ai.onnx.
const noOpset = math.MinInt64

// raise takes a scope and all within from one opset to r.to.
func (r *raiser) raise(s *scope, from int64) error {
	if err := s.defined(from); err != nil {
		return err
	}
	if from == noOpset {
		return nil // defined found no node of ai.onnx
	}
	if from < oldest {
		return fmt.Errorf("opset %d is older than %d, the oldest that can be raised; export the model again", from, oldest)
	}
	for version := from + 1; version <= r.to; version++ {
		if err := s.step(version); err != nil {
			return err
		}
	}
	return nil
}

// raiseFunction raises a function of the model, unless each of its operators
// has the same definition at both opsets, and it gets no others.
func (r *raiser) raiseFunction(f *onnxpb.FunctionProto, from int64, growing bool) error {
	s := newScope(r, nil)
	s.function, s.nodes = f, f.GetNode()
	if !growing && s.same(from) {
		return nil
	}
	r.functions[f] = s
	return r.raise(s, from)
}

// defined reports the first node whose operator is not defined at an opset.
func (s *scope) defined(opset int64) error {
	for _, n := range s.nodes {
		if op := n.GetOpType(); s.concerned(n) && (opset == noOpset || definition(op, opset) == 0) {
			reason := fmt.Sprintf("is not defined at opset %d of ai.onnx", opset)
			switch {
			case opset == noOpset:
				reason = "the model does not import ai.onnx"
			case operators[op].versions == nil:
				reason = "is no operator of ai.onnx, and what it means at another opset is not known"
			}
			return &Error{Op: op, Node: label(n), Reason: reason}
		}
		for _, g := range subgraphs(n) {
			if err := s.scope(g, s).defined(opset); err != nil {
				return err
			}
		}
	}
	return nil
}

// same reports whether the operators of the scope have the same definitions at
// an opset as at the one to raise to.
func (s *scope) same(opset int64) bool {
	for _, n := range s.nodes {
		if op := n.GetOpType(); s.concerned(n) && definition(op, opset) != definition(op, s.to) {
			return false
		}
		for _, g := range subgraphs(n) {
			if !s.scope(g, s).same(opset) {
				return false
			}
		}
	}
	return true
}

// step adapts the nodes of the scope, innermost first, to one opset.
func (s *scope) step(version int64) error {
	nodes := make([]*onnxpb.NodeProto, 0, len(s.nodes))
	for _, n := range s.nodes {
		for _, g := range subgraphs(n) {
			if err := s.scope(g, s).step(version); err != nil {
				return err
			}
		}
		adapt := adapterOf(n.GetOpType(), version)
		if adapt == nil || !s.concerned(n) {
			nodes = append(nodes, n)
			continue
		}
		if len(n.GetOutput()) == 0 {
			return &Error{Op: n.GetOpType(), Node: label(n), Step: version, Reason: "it has no output"}
		}
		e := &edit{scope: s, version: version, node: s.own(n)}
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

// concerned reports whether a node's operator is one of ai.onnx.
func (s *scope) concerned(n *onnxpb.NodeProto) bool {
	return isDefault(n.GetDomain()) && !s.local[n.GetOpType()]
}

// own returns the node itself if it may be changed, or a copy in its place.
func (s *scope) own(n *onnxpb.NodeProto) *onnxpb.NodeProto {
	if _, ok := s.origin[n]; ok {
		return n
	}
	c := &onnxpb.NodeProto{}
	assign(c, n)
	c.Input, c.Output, c.Attribute = slices.Clone(n.Input), slices.Clone(n.Output), slices.Clone(n.Attribute)
	s.origin[c] = n
	return c
}

// commit puts the work into the model.
func (r *raiser) commit() {
	for _, s := range r.graphs {
		if len(s.origin) == 0 {
			continue // shares its nodes with the model
		}
		s.graph.Node = s.finished()
		s.graph.Initializer = append(s.graph.Initializer, s.initializers...)
	}
	for f, s := range r.functions {
		f.Node = s.finished()
		f.OpsetImport = withDefault(f.OpsetImport, r.to)
	}
}

// finished returns the nodes of the scope, changed ones at their old address.
func (s *scope) finished() []*onnxpb.NodeProto {
	nodes := slices.Concat(s.leading, s.nodes)
	for i, n := range nodes {
		if old := s.origin[n]; old != nil {
			assign(old, n)
			nodes[i] = old
		}
	}
	return nodes
}

// assign makes dst equal to src, fields and unknown fields, sharing their
// contents.
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

// label names a node for people.
func label(n *onnxpb.NodeProto) string {
	if n.GetName() != "" || len(n.GetOutput()) == 0 {
		return n.GetName()
	}
	return n.Output[0]
}
