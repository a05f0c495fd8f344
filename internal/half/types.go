package half

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/optypes"
)

// elem is the element type of a value.
type elem struct {
	dtype    dtype.DType // optypes.Other if not a float; 0 if unknown
	sequence bool        // a sequence or optional
}

// float reports whether the value is a float32 tensor, which may become half.
func (e elem) float() bool { return e.dtype == dtype.Float32 && !e.sequence }

var other = elem{dtype: optypes.Other}

// typing finds the types of values, from declarations and from operators.
type typing struct {
	x       *graph.Graph
	types   map[*graph.Value]elem
	homes   map[*graph.Value]home
	called  map[*graph.Function]*call
	imports map[string]int64 // of the model
}

// home is the graph or function that contains a value.
type home struct {
	graph    *onnxpb.GraphProto // nil in the body of a function
	function *graph.Function
	owner    *onnxpb.NodeProto // the node whose subgraph it is; nil for the main graph and functions
}

// call collects the argument types over all calls of a function.
type call struct {
	inputs, outputs []elem
	torn            bool // they give inputs of different types
}

// typesOf finds the types of all values of a model.
func typesOf(x *graph.Graph) *typing {
	t := &typing{
		x: x, types: map[*graph.Value]elem{}, homes: map[*graph.Value]home{}, called: map[*graph.Function]*call{},
		imports: versions(x.File.Proto.OpsetImport),
	}
	t.graph(x.File.Proto.Graph, nil)
	return t
}

func versions(imports []*onnxpb.OperatorSetIdProto) map[string]int64 {
	m := map[string]int64{}
	for _, o := range imports {
		m[domain(o.GetDomain())] = o.GetVersion()
	}
	return m
}

func domain(name string) string {
	if graph.IsStandard(name) {
		return ""
	}
	return name
}

// signature returns the types of a node's operator, or nil.
func (t *typing) signature(n *onnxpb.NodeProto) *optypes.Signature {
	imports := t.imports
	if body := t.x.Home(n).Body; body != nil {
		imports = versions(body.Proto.OpsetImport)
	}
	d := domain(n.GetDomain())
	version, ok := imports[d]
	if !ok && d == graph.Contrib {
		version = 1
	}
	return optypes.Of(d, n.GetOpType(), version)
}

// graph finds the types in a graph whose inputs have the given types; nil: as declared.
func (t *typing) graph(g *onnxpb.GraphProto, inputs []elem) {
	scope := t.x.Scope(g)
	for _, v := range scope.Values {
		t.homes[v] = home{graph: g, owner: scope.Owner}
	}
	declared := map[string]elem{}
	for _, infos := range [][]*onnxpb.ValueInfoProto{g.Input, g.Output, g.ValueInfo} {
		for _, info := range infos {
			if e := typeOf(info.GetType()); e.dtype != 0 {
				declared[info.GetName()] = e
			}
		}
	}
	for i, in := range g.Input {
		e := declared[in.GetName()]
		if i < len(inputs) && inputs[i].dtype != 0 {
			e = inputs[i]
		}
		t.types[scope.Values[in.GetName()]] = e
	}
	for _, i := range g.Initializer {
		t.types[scope.Values[i.GetName()]] = elemOf(i)
	}
	for _, s := range g.SparseInitializer {
		t.types[scope.Values[s.GetValues().GetName()]] = elemOf(s.GetValues())
	}
	t.nodes(g.Node, declared)
}

func elemOf(t *onnxpb.TensorProto) elem { return elem{dtype: floatOr(dtype.DType(t.GetDataType()))} }

// floatOr returns t if it is a floating point type, else Other.
func floatOr(t dtype.DType) dtype.DType {
	if t == 0 || t.Float() {
		return t
	}
	return optypes.Other
}

// typeOf reads a declaration.
func typeOf(t *onnxpb.TypeProto) elem {
	switch v := t.GetValue().(type) {
	case *onnxpb.TypeProto_TensorType:
		return elem{dtype: floatOr(dtype.DType(v.TensorType.GetElemType()))}
	case *onnxpb.TypeProto_SequenceType:
		return elem{typeOf(v.SequenceType.GetElemType()).dtype, true}
	case *onnxpb.TypeProto_OptionalType:
		return elem{typeOf(v.OptionalType.GetElemType()).dtype, true}
	case nil:
		return elem{}
	}
	return other
}

func (t *typing) nodes(nodes []*onnxpb.NodeProto, declared map[string]elem) {
	for _, n := range ordered(nodes) {
		given := make([]elem, len(n.Input))
		for i, v := range t.x.Inputs(n) {
			given[i] = t.types[v]
		}
		made := t.node(n, given)
		for i, v := range t.x.Outputs(n) {
			if v == nil {
				continue
			}
			if s := t.x.Home(n); s.Graph == nil {
				t.homes[v] = home{function: s.Body}
			}
			e := made(i)
			if d, ok := declared[v.Name]; ok && e.dtype == 0 {
				e = d
			}
			t.types[v] = e
		}
	}
}

// node visits the graphs of a node, and returns the types of its outputs.
func (t *typing) node(n *onnxpb.NodeProto, given []elem) func(output int) elem {
	if f := t.x.Called(n); f != nil {
		return t.call(f, given)
	}
	bodies := t.bodies(n, given)
	if standard := graph.IsStandard(n.GetDomain()); standard && len(bodies) > 0 {
		body := bodies[0]
		returned := func(i int) elem {
			if values := t.x.Returned[body]; i < len(values) {
				return t.types[values[i]]
			}
			return elem{}
		}
		switch n.GetOpType() {
		case "If", "Scan":
			return returned
		case "Loop":
			return func(i int) elem {
				if i+2 < len(given) {
					return given[i+2]
				}
				return returned(i + 1)
			}
		}
		return func(int) elem { return elem{} }
	}
	if e, ok := fromAttributes(n, given); ok {
		return func(int) elem { return e }
	}
	return fromSignature(t.signature(n), given)
}

// bodies visits the graphs in a node's attributes.
func (t *typing) bodies(n *onnxpb.NodeProto, given []elem) (bodies []*onnxpb.GraphProto) {
	for _, a := range n.Attribute {
		for _, g := range graph.Subgraphs(a) {
			var inputs []elem
			switch n.GetOpType() {
			case "Loop":
				inputs = append([]elem{other, other}, given[min(2, len(given)):]...)
			case "Scan":
				if t.imports[""] >= 9 {
					inputs = given
				}
			}
			t.graph(g, inputs)
			bodies = append(bodies, g)
		}
	}
	return bodies
}

// call visits the body of a function at its first call.
func (t *typing) call(f *graph.Function, given []elem) func(output int) elem {
	c := t.called[f]
	if c == nil {
		c = &call{inputs: given}
		t.called[f] = c
		t.function(f, c)
	}
	c.torn = c.torn || !slices.Equal(given, c.inputs)
	return func(i int) elem {
		if c.torn || i >= len(c.outputs) {
			return elem{}
		}
		return c.outputs[i]
	}
}

// function finds the types in the body of a function that is called with the given inputs.
func (t *typing) function(f *graph.Function, c *call) {
	for i, v := range f.Inputs {
		t.homes[v] = home{function: f}
		if i < len(c.inputs) {
			t.types[v] = c.inputs[i]
		}
	}
	declared := map[string]elem{}
	for _, info := range f.Proto.ValueInfo {
		declared[info.GetName()] = typeOf(info.GetType())
	}
	t.nodes(f.Proto.Node, declared)
	c.outputs = make([]elem, len(f.Proto.Output))
	returned := func(v *graph.Value) {
		if v != nil {
			for _, i := range v.Returned() {
				c.outputs[i] = t.types[v]
			}
		}
	}
	for _, v := range f.Inputs {
		returned(v)
	}
	for _, n := range f.Proto.Node {
		for _, v := range t.x.Outputs(n) {
			returned(v)
		}
	}
}

// fromAttributes returns the type of a node's outputs if attributes say it.
func fromAttributes(n *onnxpb.NodeProto, given []elem) (elem, bool) {
	if !graph.IsStandard(n.GetDomain()) {
		return elem{}, false
	}
	of := func(name string, otherwise elem) (elem, bool) {
		if a := graph.Attribute(n, name); a != nil {
			if a.GetRefAttrName() != "" {
				return elem{}, true
			}
			return elem{dtype: floatOr(dtype.DType(a.GetI()))}, true
		}
		return otherwise, true
	}
	first := elem{}
	if len(given) > 0 {
		first = given[0]
	}
	switch n.GetOpType() {
	case "Cast":
		if a := graph.Attribute(n, "to"); a.GetRefAttrName() == "" && len(a.GetS()) > 0 { // opset 5 and before
			return elem{dtype: floatOr(typeNamed(string(a.GetS())))}, true
		}
		return of("to", elem{})
	case "BitCast":
		return of("to", elem{})
	case "RandomNormal", "RandomUniform":
		return of("dtype", elem{dtype: dtype.Float32})
	case "EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli":
		return of("dtype", first)
	case "Multinomial", "QuantizeLinear":
		return other, true
	case "MelWeightMatrix", "BlackmanWindow", "HammingWindow", "HannWindow":
		return of("output_datatype", elem{dtype: dtype.Float32})
	case "SequenceEmpty":
		e, _ := of("dtype", elem{dtype: dtype.Float32})
		e.sequence = true
		return e, true
	case "SequenceConstruct", "SplitToSequence", "Optional":
		first.sequence = true
		return first, true
	case "SequenceAt", "ConcatFromSequence", "OptionalGetElement":
		first.sequence = false
		return first, true
	case "DequantizeLinear":
		if graph.Attribute(n, "output_dtype").GetI() != 0 {
			return of("output_dtype", elem{})
		}
		if len(given) > 1 {
			return given[1], true
		}
	case "ConstantOfShape":
		if a := graph.Attribute(n, "value"); a != nil {
			return elemOf(a.T), true
		}
		return elem{dtype: dtype.Float32}, true
	case "Constant":
		return constantType(n), true
	}
	return elem{}, false
}

func constantType(n *onnxpb.NodeProto) elem {
	for _, a := range n.Attribute {
		switch {
		case a.GetRefAttrName() != "":
			return elem{}
		case a.T != nil:
			return elemOf(a.T)
		case a.SparseTensor != nil:
			return elemOf(a.SparseTensor.GetValues())
		case a.GetName() == "value_float" || a.GetName() == "value_floats":
			return elem{dtype: dtype.Float32}
		}
	}
	return other
}

// typeNamed returns the type that Cast named up to opset 5.
func typeNamed(name string) dtype.DType {
	return dtype.DType(onnxpb.TensorProto_DataType_value[name])
}

// fromSignature returns the types of outputs that the inputs determine.
func fromSignature(s *optypes.Signature, given []elem) func(output int) elem {
	bound := map[string]elem{}
	if s != nil {
		for i, e := range given {
			if p, ok := s.Input(i); ok && p.Variable != "" && bound[p.Variable].dtype == 0 {
				bound[p.Variable] = e
			}
		}
	}
	return func(i int) elem {
		if s == nil {
			return elem{}
		}
		p, ok := s.Output(i)
		switch e, known := bound[p.Variable]; {
		case !ok || p.Mixed:
			return elem{}
		case p.Variable == "":
			return elem{dtype: p.Type}
		case known:
			return e
		}
		f := s.Variables[p.Variable]
		switch {
		case f.Float32 && !f.Float16: // such as the mean of LayerNormalization, by stash_type
			return elem{dtype: dtype.Float32}
		case !f.Float16 && !f.BFloat16 && !f.Float32 && !f.Float64:
			return other
		}
		return elem{}
	}
}

// Types finds the element types of all values of a model: a floating point type, optypes.Other for any
// other type, 0 if unknown. A sequence is optypes.Other.
func Types(x *graph.Graph) func(*graph.Value) dtype.DType {
	t := typesOf(x)
	return func(v *graph.Value) dtype.DType {
		if e := t.types[v]; !e.sequence {
			return e.dtype
		}
		return optypes.Other
	}
}
