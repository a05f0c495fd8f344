package half

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// rewriting changes the types in a copy of a model, and inserts Casts.
type rewriting struct {
	x       *graph.Graph
	choice  *choice
	copy    *graph.Copy
	renamed map[*graph.Value]string      // new name of a value whose name an output of the model takes over
	casts   map[cast]string              // name of the converted value
	added   map[home][]*onnxpb.NodeProto // new nodes
	count   int
}

// cast is a value in another type, in a graph or function.
type cast struct {
	value *graph.Value
	half  bool
	home  home
}

func (r *rewriting) run() {
	defer r.importOperators()
	r.outputs()
	r.readers()
	r.returns()
	graph.WalkNodes(r.x.File.Proto, r.attributes)
	r.declarations()
	for h, nodes := range r.added {
		if h.function != nil {
			f := r.copy.Proto.Functions[h.function.Index]
			f.Node = ordered(append(nodes, f.Node...))
			continue
		}
		g := r.graph(h)
		g.Node = ordered(append(nodes, g.Node...))
	}
}

// importOperators imports ai.onnx if a new Cast needs it: a model with only custom operators may not.
func (r *rewriting) importOperators() {
	if r.count > 0 && graph.Opset(r.copy.Proto) == 0 {
		r.copy.Proto.OpsetImport = append(r.copy.Proto.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(""), Version: new(int64(castOpset))})
	}
}

// castOpset is an opset with Cast that IR 3 allows.
const castOpset = 7

// graph returns the copy of a graph.
func (r *rewriting) graph(h home) *onnxpb.GraphProto {
	return r.copy.Graphs()[r.copy.GraphNumber(h.graph)]
}

// name returns the name of a value.
func (r *rewriting) name(v *graph.Value) string {
	if name, ok := r.renamed[v]; ok {
		return name
	}
	return v.Name
}

// nameAs returns the name of a value in the wanted type, in a graph or function.
func (r *rewriting) nameAs(v *graph.Value, half bool, h home) string {
	if r.choice.becomesHalf(v) == half {
		return r.name(v)
	}
	key := cast{v, half, h}
	if name, ok := r.casts[key]; ok {
		return name
	}
	name := r.copy.Names.Fresh(v.Name + "_" + typeName(r.typeOf(half)))
	r.cast(v, half, h, name)
	return name
}

// cast adds a Cast of a value.
func (r *rewriting) cast(v *graph.Value, half bool, h home, name string) {
	r.casts[cast{v, half, h}] = name
	r.added[h] = append(r.added[h], &onnxpb.NodeProto{
		OpType: new("Cast"), Name: new(r.copy.Names.Fresh(name + "_Cast")), Input: []string{r.name(v)}, Output: []string{name},
		Attribute: []*onnxpb.AttributeProto{r.castTo(r.typeOf(half))},
	})
	r.count++
}

// castTo is the attribute to of a Cast: the name of a type before opset 6, then its number.
func (r *rewriting) castTo(t dtype.DType) *onnxpb.AttributeProto {
	if r.x.Opset == 0 || r.x.Opset >= FirstCast { // without an opset, the output gets a newer one
		return intAttribute("to", int64(t))
	}
	typ := onnxpb.AttributeProto_STRING
	return &onnxpb.AttributeProto{Name: new("to"), Type: &typ, S: []byte(t.String())}
}

// FirstCast is the opset from which ONNX Runtime has a Cast.
const FirstCast = 6

func (r *rewriting) typeOf(half bool) dtype.DType {
	if half {
		return r.choice.opts.To
	}
	return dtype.Float32
}

func intAttribute(name string, i int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &i}
}

// outputs gives outputs of the model the type they have to have. They keep their names.
func (r *rewriting) outputs() {
	g := r.x.File.Proto.Graph
	for _, v := range r.x.Returned[g] {
		if !r.choice.types[v].float() || r.choice.becomesHalf(v) == !r.choice.opts.KeepIO || r.renamed[v] != "" {
			continue
		}
		if v.Node == nil && v.Tensor == nil {
			continue // an input is an output, too: it keeps its type
		}
		half := r.choice.becomesHalf(v)
		r.renamed[v] = r.copy.Names.Fresh(v.Name + "_" + typeName(r.typeOf(half)))
		if v.Node != nil {
			n := r.copy.Node(v.Node)
			n.Output[slices.Index(r.x.Outputs(v.Node), v)] = r.renamed[v]
		}
		r.cast(v, !half, home{graph: g}, v.Name)
	}
}

// readers gives each input of each node the type it wants.
func (r *rewriting) readers() {
	graph.WalkNodes(r.x.File.Proto, func(n *onnxpb.NodeProto) {
		for i, v := range r.x.Inputs(n) {
			if v == nil {
				continue
			}
			name := r.name(v)
			if r.choice.types[v].float() {
				if want := r.choice.wants(n, i); want != any32 {
					name = r.nameAs(v, want == half, r.choice.homes[v])
				}
			}
			if name != n.Input[i] {
				r.copy.Node(n).Input[i] = name
			}
		}
	})
}

// returns gives the outputs of subgraphs and functions the type they have to have.
func (r *rewriting) returns() {
	graph.WalkAllGraphs(r.x.File.Proto, func(g *onnxpb.GraphProto) {
		owner := r.x.Scope(g).Owner
		if owner == nil {
			return
		}
		h := home{graph: g, owner: owner}
		for i, v := range r.x.Returned[g] {
			if r.choice.types[v].float() {
				r.graph(h).Output[i].Name = new(r.nameAs(v, r.choice.ownerHalf(owner), h))
			}
		}
	})
	for _, f := range r.choice.functions() {
		for _, v := range r.valuesOf(f) {
			for _, i := range v.Returned() {
				if r.choice.types[v].float() {
					r.copy.Proto.Functions[f.Index].Output[i] = r.nameAs(v, r.choice.functionHalf(f), home{function: f})
				}
			}
		}
	}
}

// declarations changes the declared types of values.
func (r *rewriting) declarations() {
	graph.WalkAllGraphs(r.x.File.Proto, func(g *onnxpb.GraphProto) {
		scope, c := r.x.Scope(g), r.graph(home{graph: g})
		for _, infos := range [][]*onnxpb.ValueInfoProto{c.Input, c.ValueInfo} {
			for i, info := range infos {
				if v := scope.Values[info.GetName()]; v != nil && r.renamed[v] == "" && r.choice.becomesHalf(v) {
					infos[i] = proto.CloneOf(info)
					r.declare(infos[i])
				}
			}
		}
		for i, v := range r.x.Returned[g] {
			if r.choice.types[v].float() && r.choice.ownerHalf(scope.Owner) {
				r.declare(c.Output[i])
			}
		}
	})
	for _, f := range r.choice.functions() {
		halved := map[string]bool{}
		for _, v := range r.valuesOf(f) {
			halved[v.Name] = r.choice.becomesHalf(v)
		}
		for _, info := range r.copy.Proto.Functions[f.Index].ValueInfo {
			if halved[info.GetName()] {
				r.declare(info)
			}
		}
	}
}

// valuesOf lists the values in the body of a function, without its subgraphs.
func (r *rewriting) valuesOf(f *graph.Function) []*graph.Value {
	values := slices.Clone(f.Inputs)
	for _, n := range f.Proto.Node {
		for _, v := range r.x.Outputs(n) {
			if v != nil {
				values = append(values, v)
			}
		}
	}
	return values
}

func (r *rewriting) declare(info *onnxpb.ValueInfoProto) {
	if t := info.GetType().GetTensorType(); t != nil {
		t.ElemType = new(int32(r.choice.opts.To))
	}
}

// attributes changes the attributes of a node that name its output type.
func (r *rewriting) attributes(n *onnxpb.NodeProto) {
	v := r.x.Made(n)
	if v == nil || !graph.IsStandard(n.GetDomain()) || !r.choice.becomesHalf(v) {
		return
	}
	replace := func(a *onnxpb.AttributeProto) {
		c, name := r.copy.Node(n), a.GetName()
		for i, old := range c.Attribute {
			if old.GetName() == name {
				c.Attribute[i] = a
				return
			}
		}
		c.Attribute = append(c.Attribute, a)
	}
	set := func(name string) { replace(intAttribute(name, int64(r.choice.opts.To))) }
	switch n.GetOpType() {
	case "Cast":
		replace(r.castTo(r.choice.opts.To))
	case "RandomNormal", "RandomUniform":
		set("dtype")
	case "EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli":
		if graph.Attribute(n, "dtype") != nil {
			set("dtype")
		}
	case "MelWeightMatrix", "BlackmanWindow", "HammingWindow", "HannWindow":
		set("output_datatype")
	case "DequantizeLinear":
		if graph.IntAttribute(n, "output_dtype") != 0 {
			set("output_dtype")
		}
	}
}

// ordered sorts nodes topologically.
func ordered(nodes []*onnxpb.NodeProto) []*onnxpb.NodeProto {
	sorted, err := graph.Ordered(nodes)
	if err != nil {
		return nodes // graph.New checks the result
	}
	return sorted
}
