package onnxq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// errModel is wrapped by errors about a graph that makes no sense.
var errModel = errors.New("invalid model")

// graphIndex knows where every value of a model comes from and who reads it.
type graphIndex struct {
	values  []*value                     // those with a tensor, in the order of the file
	unusual []*value                     // floats that are stored in no tensor
	names   map[string]bool              // names of values and nodes, anywhere in the model
	nodes   []string                     // names of nodes
	home    map[*onnxpb.NodeProto]*scope // where nodes lie
	file    *modelfile.Model

	inputs, outputs map[*onnxpb.NodeProto][]*value  // by position; nil where there is none
	returned        map[*onnxpb.GraphProto][]*value // by graphs
	functions       map[string]*function

	paths  map[string]bool // of subgraphs
	suffix map[string]int  // the last one tried for a path that is taken
	ir     int64
	opset  int64
}

func newGraphIndex(ir int64) *graphIndex {
	return &graphIndex{
		names:     map[string]bool{},
		inputs:    map[*onnxpb.NodeProto][]*value{},
		outputs:   map[*onnxpb.NodeProto][]*value{},
		returned:  map[*onnxpb.GraphProto][]*value{},
		home:      map[*onnxpb.NodeProto]*scope{},
		functions: map[string]*function{},
		paths:     map[string]bool{},
		suffix:    map[string]int{},
		ir:        ir,
	}
}

// source returns what is read, or nil.
func (x *graphIndex) source(u use) *value {
	if inputs := x.inputs[u.node]; u.input < len(inputs) {
		return inputs[u.input]
	}
	return nil
}

// made returns the first of a node's outputs, or nil.
func (x *graphIndex) made(n *onnxpb.NodeProto) *value {
	for _, v := range x.outputs[n] {
		if v != nil {
			return v
		}
	}
	return nil
}

// value is a named value of one graph.
type value struct {
	name        string
	path        string              // name with the subgraphs it lies in, unique in messages
	tensor      *onnxpb.TensorProto // what an initializer or a Constant node holds
	unusual     *unusual            // how else floats are stored, if so
	node        *onnxpb.NodeProto   // the node that makes it
	input       bool                // an input of its graph
	mustBeInput bool                // an initializer that is an input only because all are
	output      bool                // an output of its graph
	body        *function           // the function that it lies in, also if in a graph there
	returned    []int               // which outputs of that function it is
	uses        []use
}

// unusual is how floats are stored that are in no tensor.
type unusual struct {
	form   string // for messages
	dtype  dtype.DType
	shape  []int64
	bytes  int64
	sparse *onnxpb.SparseTensorProto
}

// keepUnusual notes a value that is stored so, if it is one of floats.
func (x *graphIndex) keepUnusual(v *value, u unusual) {
	if u.dtype.Float() {
		v.unusual = &u
		x.unusual = append(x.unusual, v)
	}
}

// sparseTensor is a tensor of which only some elements are stored.
func sparseTensor(t *onnxpb.SparseTensorProto) unusual {
	return unusual{
		form:   "a sparse tensor",
		dtype:  dtype.DType(t.GetValues().GetDataType()),
		shape:  t.GetDims(),
		bytes:  sizeOf(t.GetValues()) + sizeOf(t.GetIndices()),
		sparse: t,
	}
}

// use is one place where a value is read.
type use struct {
	node  *onnxpb.NodeProto
	input int // position among the node's inputs
}

func (u use) String() string { return fmt.Sprintf("%s:%d", operatorName(u.node), u.input) }

// scope is a graph or a function body, inside of those that enclose it.
type scope struct {
	body   *function // the function that it is or lies in
	outer  *scope
	owner  *onnxpb.NodeProto // the node that holds the graph, if one does
	values map[string]*value
	path   string
}

func (s *scope) lookup(name string) *value {
	for ; s != nil; s = s.outer {
		if v := s.values[name]; v != nil {
			return v
		}
	}
	return nil
}

// The newest versions this program knows.
const (
	newestIR    = 14
	newestOpset = 28
)

// indexModel checks the model as a whole and indexes its values.
func indexModel(file *modelfile.Model) (*graphIndex, error) {
	m := file.Proto
	if m.Graph == nil {
		return nil, fmt.Errorf("%w: it has no graph", errModel)
	}
	if ir := m.GetIrVersion(); m.IrVersion == nil || ir < 1 || ir > newestIR {
		return nil, fmt.Errorf("%w: ir_version %d is not known (1 to %d)", errModel, ir, newestIR)
	}
	if len(m.OpsetImport) == 0 {
		return nil, fmt.Errorf("%w: it has no opset_import", errModel)
	}
	if err := checkOpsets(m.OpsetImport); err != nil {
		return nil, fmt.Errorf("%w: %w", errModel, err)
	}
	x := newGraphIndex(m.GetIrVersion())
	x.opset = opsetOf(m)
	x.file = file
	if err := x.graph(m.Graph, nil, nil, ""); err != nil {
		return nil, fmt.Errorf("%w: %w", errModel, err)
	}
	for _, f := range m.Functions {
		if err := x.function(f); err != nil {
			return nil, fmt.Errorf("%w: function %s: %w", errModel, f.GetName(), err)
		}
	}
	if err := x.linkCalls(); err != nil {
		return nil, fmt.Errorf("%w: %w", errModel, err)
	}
	return x, nil
}

func checkOpsets(imports []*onnxpb.OperatorSetIdProto) error {
	standard := int64(0)
	for _, o := range imports {
		v := o.GetVersion()
		if v < 1 {
			return fmt.Errorf("opset_import of domain %s has version %d", quote(o.GetDomain()), v)
		}
		if !standardDomain(o.GetDomain()) {
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

func (x *graphIndex) graph(g *onnxpb.GraphProto, outer *scope, owner *onnxpb.NodeProto, path string) error {
	s := &scope{outer: outer, owner: owner, values: map[string]*value{}, path: path}
	if outer != nil {
		s.body = outer.body
	}
	for _, in := range g.GetInput() {
		if typ := in.GetType().GetTensorType(); outer == nil && typ != nil && typ.GetElemType() == 0 {
			return fmt.Errorf("graph input %s: its tensor type has no elem_type", quote(in.GetName()))
		}
		if err := s.define(&value{name: in.GetName(), input: true}); err != nil {
			return fmt.Errorf("graph input: %w", err)
		}
		x.names[in.GetName()] = true
	}
	for _, t := range g.GetInitializer() {
		if t.GetName() == "" {
			return fmt.Errorf("%san initializer has no name", path)
		}
		v := s.values[t.GetName()]
		if v == nil || !v.input || v.tensor != nil {
			v = &value{name: t.GetName()}
			if err := s.define(v); err != nil {
				return fmt.Errorf("initializer: %w", err)
			}
		}
		v.tensor, v.path, v.body = t, path+v.name, s.body
		v.mustBeInput = v.input && (x.ir <= 4 || everyInitializerIsInput(g))
		x.values = append(x.values, v)
		x.names[v.name] = true
	}
	for _, t := range g.GetSparseInitializer() {
		v := &value{name: t.GetValues().GetName(), path: path + t.GetValues().GetName(), body: s.body}
		if err := s.define(v); err != nil {
			return fmt.Errorf("sparse initializer: %w", err)
		}
		x.names[v.name] = true
		x.keepUnusual(v, sparseTensor(t))
	}
	outputs := make([]string, len(g.GetOutput()))
	for i, o := range g.GetOutput() {
		outputs[i] = o.GetName()
	}
	ends, err := x.body(g.GetNode(), outputs, s)
	for _, v := range ends {
		v.output = true
	}
	x.returned[g] = ends
	return err
}

// everyInitializerIsInput tells a graph written as up to IR 3, where initializers
// had to be inputs too, from one that offers some of them for replacement. (What
// wrote IR 4, the next one, mostly kept to the habit.)
func everyInitializerIsInput(g *onnxpb.GraphProto) bool {
	inputs := map[string]bool{}
	for _, in := range g.Input {
		inputs[in.GetName()] = true
	}
	return !slices.ContainsFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return !inputs[t.GetName()] })
}

// body indexes the nodes of a graph or function whose inputs and initializers
// are defined in s already. It returns the values that the outputs mean.
func (x *graphIndex) body(nodes []*onnxpb.NodeProto, outputs []string, s *scope) ([]*value, error) {
	for _, n := range nodes {
		if len(n.Output) == 0 && (standardDomain(n.GetDomain()) || n.GetDomain() == contribDomain) {
			return nil, fmt.Errorf("%s has no output", describe(n))
		}
		x.home[n] = s
		if n.GetName() != "" {
			x.names[n.GetName()] = true
			x.nodes = append(x.nodes, n.GetName())
		}
		made := make([]*value, len(n.Output))
		for i, name := range n.Output {
			if name == "" {
				continue
			}
			x.names[name] = true
			v := &value{name: name, node: n, path: s.path + name, body: s.body}
			made[i] = v
			if err := s.define(v); err != nil {
				return nil, fmt.Errorf("output of %s: %w", describe(n), err)
			}
			x.constant(v)
		}
		x.outputs[n] = made
	}
	for _, n := range nodes {
		read := make([]*value, len(n.Input))
		for i, name := range n.Input {
			if name == "" {
				continue
			}
			v := s.lookup(name)
			if v == nil {
				return nil, fmt.Errorf("%s reads %s, which nothing makes", describe(n), quote(name))
			}
			v.uses = append(v.uses, use{n, i})
			read[i] = v
		}
		x.inputs[n] = read
		for _, a := range n.Attribute {
			for _, g := range subgraphs(a) {
				if err := x.graph(g, s, n, x.subgraphPath(s.path, n, a)); err != nil {
					return nil, err
				}
			}
		}
	}
	ends := make([]*value, len(outputs))
	for i, name := range outputs {
		if ends[i] = s.lookup(name); ends[i] == nil {
			return nil, fmt.Errorf("graph output %s is made by nothing", quote(name))
		}
	}
	_, err := ordered(nodes)
	return ends, err
}

// define adds a value to its graph, where its name must be new.
func (s *scope) define(v *value) error {
	if s.values[v.name] != nil {
		return fmt.Errorf("%s is there twice", quote(s.path+v.name))
	}
	s.values[v.name] = v
	return nil
}

// constant notes what a value holds that a Constant node makes.
func (x *graphIndex) constant(v *value) {
	n := v.node
	if n.GetOpType() != "Constant" || !standardDomain(n.GetDomain()) {
		return
	}
	for _, a := range n.Attribute {
		switch a.GetName() {
		case "value":
			if v.tensor = a.T; a.T != nil {
				x.values = append(x.values, v)
			}
		case "sparse_value":
			x.keepUnusual(v, sparseTensor(a.SparseTensor))
		case "value_floats":
			n := int64(len(a.Floats))
			x.keepUnusual(v, unusual{form: a.GetName(), dtype: dtype.Float32, shape: []int64{n}, bytes: 4 * n})
		}
	}
}

// subgraphPath names a graph that an attribute of a node holds: by the attribute
// if that is enough, or else by the node too.
func (x *graphIndex) subgraphPath(outer string, n *onnxpb.NodeProto, a *onnxpb.AttributeProto) string {
	path := outer + a.GetName() + "/"
	if x.paths[path] {
		path = outer + label(n) + "/" + a.GetName() + "/"
	}
	if first := path; x.paths[path] {
		for x.paths[path] {
			x.suffix[first]++
			path = first + strconv.Itoa(x.suffix[first]) + "/"
		}
	}
	x.paths[path] = true
	return path
}

// scanned tells whether the body of a Scan reads a value from outside.
func (x *graphIndex) scanned(v *value) bool {
	return slices.ContainsFunc(v.uses, func(u use) bool {
		for s := x.home[u.node]; s != nil && s.values[v.name] != v; s = s.outer {
			if s.owner.GetOpType() == "Scan" {
				return true
			}
		}
		return false
	})
}
