package graph

import (
	"fmt"
	"slices"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// The newest IR version and opset that this program knows.
const (
	newestIR    = 14
	newestOpset = 28
)

// New checks the structure of a model and indexes its values.
func New(file *modelfile.Model) (*Graph, error) {
	m := file.Proto
	if m.Graph == nil {
		return nil, fmt.Errorf("%w: it has no graph", ErrModel)
	}
	if ir := m.GetIrVersion(); m.IrVersion == nil || ir < 1 || ir > newestIR {
		return nil, fmt.Errorf("%w: ir_version %d is not known (1 to %d)", ErrModel, ir, newestIR)
	}
	if _, ok := opset.OfModel(m); len(m.OpsetImport) == 0 && !ok {
		return nil, fmt.Errorf("%w: it has no opset_import", ErrModel)
	}
	if err := checkOpsets(m.OpsetImport); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	nodes := 0
	WalkNodes(m, func(*onnxpb.NodeProto) { nodes++ })
	x := empty(m.GetIrVersion(), nodes)
	x.Opset = Opset(m)
	x.File = file
	if err := x.graph(m.Graph, nil, nil, ""); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	for _, f := range m.Functions {
		if err := x.function(f); err != nil {
			return nil, fmt.Errorf("%w: function %s: %w", ErrModel, f.GetName(), err)
		}
	}
	if err := x.linkCalls(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	return x, nil
}

// empty returns a graph with room for a number of nodes.
func empty(ir int64, nodes int) *Graph {
	return &Graph{
		Returned:  map[*onnxpb.GraphProto][]*Value{},
		numbers:   make(map[*onnxpb.NodeProto]int32, nodes),
		places:    make([]place, 1, nodes+1),
		arguments: map[*onnxpb.GraphProto][]*Value{},
		carried:   map[*onnxpb.NodeProto][]*Value{},
		functions: map[string]*Function{},
		scopes:    map[*onnxpb.GraphProto]*Scope{},
		paths:     map[string]*Scope{},
		suffix:    map[string]int{},
		ir:        ir,
	}
}

// checkOpsets checks the versions of the imported operator sets.
func checkOpsets(imports []*onnxpb.OperatorSetIdProto) error {
	standard := int64(0)
	for _, o := range imports {
		v := o.GetVersion()
		if v < 1 {
			return fmt.Errorf("opset_import of domain %s has version %d", msg.Quote(o.GetDomain()), v)
		}
		if !IsStandard(o.GetDomain()) {
			continue
		}
		if v > newestOpset {
			return fmt.Errorf("opset %d is not known (up to %d)", v, newestOpset)
		}
		if standard != 0 && standard != v {
			return fmt.Errorf("opset_import gives two versions, %d and %d, of the ONNX operators", standard, v)
		}
		standard = v
	}
	return nil
}

// graph indexes a graph. owner is the node whose attribute holds it; nil for the main graph.
func (x *Graph) graph(g *onnxpb.GraphProto, outer *Scope, owner *onnxpb.NodeProto, path string) error {
	s := &Scope{outer: outer, Owner: owner, Graph: g, Values: make(map[string]*Value, len(g.GetInitializer())+len(g.GetNode())), path: path}
	x.scopes[g], x.paths[path] = s, s
	if outer != nil {
		s.Body = outer.Body
	}
	arguments := make([]*Value, len(g.GetInput()))
	for i, in := range g.GetInput() {
		if typ := in.GetType().GetTensorType(); outer == nil && typ != nil && typ.GetElemType() == 0 {
			return fmt.Errorf("graph input %s: its tensor type has no elem_type", msg.Quote(in.GetName()))
		}
		arguments[i] = &Value{Name: in.GetName(), Path: path + in.GetName(), Input: true, declared: in.GetType()}
		if err := s.define(arguments[i]); err != nil {
			return fmt.Errorf("graph input: %w", err)
		}
	}
	mustBeInputs := x.ir <= 4 || everyInitializerIsInput(g)
	for _, t := range g.GetInitializer() {
		if t.GetName() == "" {
			return fmt.Errorf("%san initializer has no name", path)
		}
		v := s.Values[t.GetName()]
		if v == nil || !v.Input || v.Tensor != nil {
			v = &Value{Name: t.GetName()}
			if err := s.define(v); err != nil {
				return fmt.Errorf("initializer: %w", err)
			}
		}
		v.Tensor, v.Path, v.Body, v.Graph = t, path+v.Name, s.Body, g
		v.MustBeInput, v.at = v.Input && mustBeInputs, int32(len(x.Values))
		x.Values = append(x.Values, v)
	}
	for _, t := range g.GetSparseInitializer() {
		v := &Value{Name: t.GetValues().GetName(), Path: path + t.GetValues().GetName(), Body: s.Body}
		if err := s.define(v); err != nil {
			return fmt.Errorf("sparse initializer: %w", err)
		}
		x.keepUnusual(v, sparseTensor(t))
	}
	outputs := make([]string, len(g.GetOutput()))
	for i, o := range g.GetOutput() {
		outputs[i] = o.GetName()
	}
	returned, err := x.body(g.GetNode(), outputs, s)
	for _, info := range g.GetValueInfo() {
		if v := s.Values[info.GetName()]; v != nil && v.declared == nil {
			v.declared = info.GetType()
		}
	}
	for i, v := range returned {
		v.Output = true
		v.rarely().yields = append(v.Yields(), Yield{owner, i})
		if v.declared == nil {
			v.declared = g.Output[i].GetType()
		}
	}
	x.arguments[g], x.Returned[g] = arguments, returned
	return err
}

// everyInitializerIsInput reports whether all initializers are inputs too. Up to IR 3 they
// had to be, and many writers of IR 4 still did so. A graph of a later version in which
// only some are inputs offers those to the caller as defaults.
func everyInitializerIsInput(g *onnxpb.GraphProto) bool {
	inputs := map[string]bool{}
	for _, in := range g.Input {
		inputs[in.GetName()] = true
	}
	return !slices.ContainsFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return !inputs[t.GetName()] })
}

// body indexes the nodes of a graph or function. Inputs and initializers must be defined
// in s already. It returns the values of the outputs.
func (x *Graph) body(nodes []*onnxpb.NodeProto, outputs []string, s *Scope) ([]*Value, error) {
	r := newRoom(nodes)
	// A graph may list its nodes in any order, so all outputs are defined before any input is looked up.
	for _, n := range nodes {
		if err := x.nodeOutputs(n, s, r); err != nil {
			return nil, err
		}
	}
	for _, n := range nodes {
		if err := x.nodeInputs(n, s); err != nil {
			return nil, err
		}
	}
	returned := make([]*Value, len(outputs))
	for i, name := range outputs {
		if returned[i] = s.lookup(name); returned[i] == nil {
			return nil, fmt.Errorf("no node makes graph output %s", msg.Quote(name))
		}
	}
	if x.inOrder(nodes) {
		x.sorted = x.sorted || s.Graph != nil && s.outer == nil
		return returned, nil
	}
	_, err := Ordered(nodes) // an error if there is a cycle
	return returned, err
}

// inOrder reports whether the nodes are sorted topologically, so that there is no cycle. It returns
// false if nodes have subgraphs, which read more values.
func (x *Graph) inOrder(nodes []*onnxpb.NodeProto) bool {
	for _, n := range nodes {
		at := x.Number(n)
		for _, v := range x.Inputs(n) {
			if v != nil && v.Node != nil && x.Number(v.Node) >= at {
				return false
			}
		}
		if slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return len(Subgraphs(a)) > 0 }) {
			return false
		}
	}
	return true
}

// room is memory for the inputs and outputs of all nodes of a scope, allocated at once: there may be
// very many nodes.
type room struct {
	values []Value
	lists  []*Value
}

func newRoom(nodes []*onnxpb.NodeProto) *room {
	made, read := 0, 0
	for _, n := range nodes {
		made += len(n.Output)
		read += len(n.Input)
	}
	return &room{make([]Value, made), make([]*Value, made+read)}
}

func (r *room) value() *Value {
	v := &r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *room) list(n int) []*Value {
	list := r.lists[:n:n]
	r.lists = r.lists[n:]
	return list
}

// nodeOutputs defines the values that a node makes.
func (x *Graph) nodeOutputs(n *onnxpb.NodeProto, s *Scope, r *room) error {
	if len(n.Output) == 0 && (IsStandard(n.GetDomain()) || n.GetDomain() == Contrib) {
		return fmt.Errorf("%s has no output", Describe(n))
	}
	x.numbers[n] = int32(len(x.places))
	values := r.list(len(n.Output) + len(n.Input))
	x.places = append(x.places, place{n, s, values})
	made := values[:len(n.Output)]
	for i, name := range n.Output {
		if name == "" {
			continue
		}
		v := r.value()
		*v = Value{Name: name, Node: n, Path: s.path + name, Body: s.Body, Graph: s.Graph}
		made[i] = v
		if err := s.define(v); err != nil {
			return fmt.Errorf("output of %s: %w", Describe(n), err)
		}
		x.constant(v)
	}
	return nil
}

// nodeInputs connects a node, and the graphs in its attributes, to the values they read.
func (x *Graph) nodeInputs(n *onnxpb.NodeProto, s *Scope) error {
	read := x.Inputs(n)
	for i, name := range n.Input {
		if name == "" {
			continue
		}
		v := s.lookup(name)
		if v == nil {
			return fmt.Errorf("%s reads %s, which does not exist", Describe(n), msg.Quote(name))
		}
		v.Uses = append(v.Uses, Use{n, i})
		read[i] = v
	}
	for _, a := range n.Attribute {
		if err := checkAttribute(a); err != nil {
			return fmt.Errorf("%s: %w", Describe(n), err)
		}
		for _, g := range Subgraphs(a) {
			if err := x.graph(g, s, n, x.subgraphPath(s.path, n, a)); err != nil {
				return err
			}
		}
	}
	if states := x.unchanged(n); states != nil {
		x.carried[n] = states
	}
	return nil
}

// checkAttribute refuses graphs and tensors in an attribute of another type: they would be
// lost where the attribute is rewritten.
func checkAttribute(a *onnxpb.AttributeProto) error {
	typ := a.GetType()
	if typ == onnxpb.AttributeProto_UNDEFINED {
		return nil
	}
	for _, held := range []struct {
		typ onnxpb.AttributeProto_AttributeType
		any bool
	}{
		{onnxpb.AttributeProto_GRAPH, a.G != nil}, {onnxpb.AttributeProto_GRAPHS, len(a.Graphs) > 0},
		{onnxpb.AttributeProto_TENSOR, a.T != nil}, {onnxpb.AttributeProto_TENSORS, len(a.Tensors) > 0},
		{onnxpb.AttributeProto_SPARSE_TENSOR, a.SparseTensor != nil}, {onnxpb.AttributeProto_SPARSE_TENSORS, len(a.SparseTensors) > 0},
	} {
		if held.any && held.typ != typ {
			return fmt.Errorf("attribute %s is of type %v, but holds a %v", msg.Quote(a.GetName()), typ, held.typ)
		}
	}
	return nil
}

// constant records the content of a value if a Constant node makes it.
func (x *Graph) constant(v *Value) {
	n := v.Node
	if n.GetOpType() != "Constant" || !IsStandard(n.GetDomain()) {
		return
	}
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "value":
			if v.Tensor = a.T; a.T != nil {
				x.Values = append(x.Values, v)
			}
		case "sparse_value":
			x.keepUnusual(v, sparseTensor(a.SparseTensor))
		case "value_floats":
			n := int64(len(a.Floats))
			x.keepUnusual(v, Unusual{Form: a.GetName(), DType: dtype.Float32, Shape: []int64{n}, Bytes: 4 * n})
		}
	}
}

// keepUnusual records how v is stored, if its elements are floats.
func (x *Graph) keepUnusual(v *Value, u Unusual) {
	if u.DType.Float() {
		v.rarely().unusual = &u
		x.Unusual = append(x.Unusual, v)
	}
}

// subgraphPath returns a unique path for the graph in an attribute. That is the attribute's name; if
// it is taken, with the node's label, and then with a number.
func (x *Graph) subgraphPath(outer string, n *onnxpb.NodeProto, a *onnxpb.AttributeProto) string {
	path := outer + a.GetName() + "/"
	if x.paths[path] != nil {
		path = outer + Label(n) + "/" + a.GetName() + "/"
	}
	for first := path; x.paths[path] != nil; {
		x.suffix[first]++
		path = first + strconv.Itoa(x.suffix[first]) + "/"
	}
	return path
}
