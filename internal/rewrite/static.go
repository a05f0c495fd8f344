package rewrite

import (
	"encoding/binary"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// placing puts pairs of QuantizeLinear and DequantizeLinear around activations.
type placing struct {
	*rewriting
	b     *form.Builder
	named map[*actpairs.Tensor]params
	plan  *actpairs.Plan
}

// params are the names of a scale and a zero point.
type params struct{ scale, zero string }

// declare declares a value that codes will make while the opset is raised: the adapters of opsets need
// its type. A nil shape is not known.
func (r *rewriting) declare(g *onnxpb.GraphProto, name string, shape *onnxpb.TensorShapeProto) {
	typ := &onnxpb.TypeProto_Tensor{ElemType: new(int32(dtype.Float32)), Shape: shape}
	r.declared[name] = true
	g.ValueInfo = append(g.ValueInfo, &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: typ}}})
}

// place applies the plan. Operators then read new names, and r.placed has the new tensors and
// nodes. It returns the least opset that they need.
func (r *rewriting) place(p *actpairs.Plan) (need int64) {
	r.placed = form.NewBuilder(r.copy.Names)
	if p == nil {
		return 0
	}
	l := &placing{r, r.placed, map[*actpairs.Tensor]params{}, p}
	for _, t := range p.Tensors {
		if t.Stored != nil && t.Codes.Type.Bits() == 16 {
			l.storedWide(t)
		}
	}
	for _, n := range p.Removed {
		r.copy.Drop(n)
		for _, v := range r.copy.Original.Inputs(n)[1:] { // the bounds of a Clip
			if v != nil && v.Tensor != nil && len(v.Uses) == 1 && !v.Output && !v.Input {
				l.dropStored(v)
			}
		}
	}
	for _, t := range p.Tensors {
		switch {
		case t.Stored == nil:
			l.activation(t)
		case t.Read != nil:
			l.convertStored(t)
		}
	}
	for _, b := range p.Biases {
		l.bias(b)
	}
	l.dropBiases(p)
	r.undeclare(r.undeclared)
	return p.Opset()
}

// params returns the scale and zero point of a tensor. For an activation it adds them first.
func (l *placing) params(t *actpairs.Tensor) params {
	if t.Like != nil {
		return l.params(t.Like)
	}
	if have, ok := l.named[t]; ok {
		return have
	}
	if w := l.replaced[t.Value]; w != nil {
		return params{w.tensors.Scales.GetName(), w.tensors.Zeros.GetName()}
	}
	name := t.Value.Name
	if t.Derived() {
		scale := l.b.Computed(l.copy, name+"_scale", dtype.Float32, nil, t.DerivedScale())
		zero := l.b.Computed(l.copy, name+"_zero_point", t.Codes.Type, nil, t.DerivedZero())
		l.named[t] = params{scale.GetName(), zero.GetName()}
		return l.named[t]
	}
	made := params{
		l.constant(name+"_scale", dtype.Float32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(t.Own.Scale))),
		l.constant(name+"_zero_point", t.Codes.Type, t.Codes.Append(nil, t.Own.Zero)),
	}
	l.named[t] = made
	return made
}

// constant adds a scalar.
func (l *placing) constant(name string, typ dtype.DType, raw []byte) string {
	t := &onnxpb.TensorProto{Name: new(l.copy.Names.Fresh(name)), DataType: new(int32(typ)), RawData: raw}
	l.b.Tensors = append(l.b.Tensors, t)
	return t.GetName()
}

// activation adds the pair of an activation. All its readers in the same graph then read the output of the pair. If the
// activation is an output of the graph, callers do, too. Readers in bodies that are quantized have a pair there: runtimes
// fuse within a graph only.
func (l *placing) activation(t *actpairs.Tensor) {
	v, x := t.Value, l.copy.Original
	home := l.home(v)
	inside := map[*graph.Scope]*decoded{} // by body
	near := v.Output || t.Made != v
	for _, u := range v.Uses {
		s := x.Home(u.Node)
		if s == home {
			near = true
			continue
		}
		if !l.plan.Open(s) {
			continue
		}
		if inside[s] == nil {
			inside[s] = l.pair(s, t, v.Name, l.copy.Names.Fresh(v.Name+"_DequantizeLinear_Output"))
		}
		l.read(u, inside[s])
	}
	if !near && len(inside) > 0 {
		return
	}
	source, result := v.Name, v.Name
	if computed := t.Made.Node; v.Output && computed != nil {
		source = l.copy.Names.Fresh(v.Name + "_QuantizeLinear_Input")
	} else {
		result = l.copy.Names.Fresh(v.Name + "_DequantizeLinear_Output")
	}
	if t.Made.Node != nil {
		l.rename(t.Made, source)
	}
	if t.Made != v {
		l.undeclared[t.Made.Name] = true
	}
	pair := l.pair(home, t, source, result)
	for _, u := range v.Uses {
		if x.Home(u.Node) == home {
			l.read(u, pair)
		}
	}
}

// decoded is the output of a pair, and of the second one behind it.
type decoded struct {
	scope          *graph.Scope
	of             *actpairs.Tensor
	name, readName string
}

// read has a node read the output of a pair, or of the second one, which is added for the first reader.
func (l *placing) read(u graph.Use, d *decoded) {
	name := d.name
	if t := l.plan.ReadBy(d.of, l.copy.Original.Number(u.Node)); t != d.of {
		if d.readName == "" {
			d.readName = l.pair(d.scope, t, d.name, l.copy.Names.Fresh(t.Value.Name+"_Converted")).name
		}
		name = d.readName
	}
	l.copy.Node(u.Node).Input[u.Input] = name
}

// convertStored adds a second pair behind a stored tensor, in each graph that needs it.
func (l *placing) convertStored(t *actpairs.Tensor) {
	in := map[*graph.Scope]*decoded{}
	for _, u := range t.Value.Uses {
		s := l.copy.Original.Home(u.Node)
		if l.plan.ReadBy(t, l.copy.Original.Number(u.Node)) == t || !l.plan.Open(s) {
			continue
		}
		if in[s] == nil {
			in[s] = &decoded{scope: s, of: t, name: t.Value.Name}
		}
		l.read(u, in[s])
	}
}

// pair adds the pair of an activation to a graph.
func (l *placing) pair(s *graph.Scope, t *actpairs.Tensor, source, result string) *decoded {
	p, b := l.params(t), l.builder(s)
	codes := b.Value(t.Value.Name, "QuantizeLinear", []string{source, p.scale, p.zero})
	b.Node(t.Value.Name, "DequantizeLinear", result, []string{codes, p.scale, p.zero})
	l.declare(l.copied(s), result, nil)
	if result != t.Value.Name {
		l.decoded[result] = source
	}
	return &decoded{scope: s, of: t, name: result}
}

// home is the scope of an activation.
func (l *placing) home(v *graph.Value) *graph.Scope {
	if v.Node != nil {
		return l.copy.Original.Home(v.Node)
	}
	return l.copy.Original.Scope(l.copy.Original.File.Proto.Graph)
}

// readBody returns the quantized body that alone reads a weight of the main graph, or nil.
func (r *rewriting) readBody(v *graph.Value, p *actpairs.Plan) (body *graph.Scope) {
	x := r.copy.Original
	for _, u := range v.Uses {
		s := x.Home(u.Node)
		if body != nil && s != body || r.copy.GraphNumber(s.Graph) == 0 || !p.Open(s) {
			return nil
		}
		body = s
	}
	if body == nil || v.Output || x.Scope(x.File.Proto.Graph).Values[v.Name] != v {
		return nil
	}
	return body
}

// copied returns the copy of a graph.
func (r *rewriting) copied(s *graph.Scope) *onnxpb.GraphProto {
	return r.copy.Graphs()[r.copy.GraphNumber(s.Graph)]
}

// builder returns what collects the nodes that pairs add to a graph.
func (r *rewriting) builder(s *graph.Scope) *form.Builder {
	n := r.copy.GraphNumber(s.Graph)
	if n == 0 {
		return r.placed
	}
	if r.bodies[n] == nil {
		r.bodies[n] = form.NewBuilder(r.copy.Names)
	}
	return r.bodies[n]
}

// rename renames the output of a node.
func (l *placing) rename(v *graph.Value, name string) {
	i := slices.Index(l.copy.Original.Outputs(v.Node), v)
	l.copy.Node(v.Node).Output[i] = name
}

// undeclare removes the declarations of values.
func (r *rewriting) undeclare(names map[string]bool) {
	for _, g := range r.copy.Graphs() {
		g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool { return names[v.GetName()] })
	}
}

// storedWide replaces a stored tensor by codes of 16 bits.
func (l *placing) storedWide(t *actpairs.Tensor) {
	v := t.Value
	var scales []int64
	var attrs []*onnxpb.AttributeProto
	if t.Axis >= 0 {
		scales, attrs = []int64{v.Tensor.GetDims()[t.Axis]}, []*onnxpb.AttributeProto{form.IntAttr("axis", int64(t.Axis))}
	}
	codes := l.b.Computed(l.copy, v.Name+"_quantized", t.Codes.Type, v.Tensor.GetDims(), t.Codes16())
	scale := l.b.Computed(l.copy, v.Name+"_scale", dtype.Float32, scales, t.ScaleBytes())
	zero := l.b.Computed(l.copy, v.Name+"_zero_point", t.Codes.Type, scales, t.ZeroBytes())
	l.named[t] = params{scale.GetName(), zero.GetName()}
	l.b.Node(v.Name, "DequantizeLinear", v.Name, []string{codes.GetName(), scale.GetName(), zero.GetName()}, attrs...)
	l.dropStored(v)
}

// declareDropped declares the stored tensors of 16 bits whose Constant nodes are gone. Without them, the
// adapters would not know the rank of what reads them.
func (r *rewriting) declareDropped(p *actpairs.Plan) {
	if p == nil {
		return
	}
	for _, t := range p.Tensors {
		if t.Stored == nil || t.Codes.Type.Bits() != 16 || t.Value.Node == nil {
			continue
		}
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range t.Value.Tensor.GetDims() {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
		}
		r.declare(r.copy.Proto.Graph, t.Value.Name, shape)
	}
}

// bias makes a node read the decoded codes of its bias.
func (l *placing) bias(b *actpairs.Bias) {
	name, dims := b.Value.Name, b.Value.Tensor.GetDims()
	n := int64(1)
	var scales []int64
	var attrs []*onnxpb.AttributeProto
	if b.Channels() {
		n = dims[0]
		scales, attrs = []int64{n}, []*onnxpb.AttributeProto{form.IntAttr("axis", 0)}
	}
	codes := l.b.Computed(l.copy, name+"_quantized", dtype.Int32, dims, b.CodeBytes())
	scale := l.b.Computed(l.copy, name+"_quantized_scale", dtype.Float32, scales, b.ScaleBytes())
	zero := l.b.Constant(name+"_quantized_zero_point", dtype.Int32, scales, make([]byte, 4*n))
	s := l.copy.Original.Home(b.Node)
	result := l.builder(s).Value(name, "DequantizeLinear", []string{codes.GetName(), scale.GetName(), zero}, attrs...)
	l.declare(l.copied(s), result, nil)
	l.copy.Node(b.Node).Input[2] = result
}

// dropBiases drops the biases that no node reads any more.
func (l *placing) dropBiases(p *actpairs.Plan) {
	left := map[*graph.Value]int{}
	for _, b := range p.Biases {
		if _, ok := left[b.Value]; !ok {
			left[b.Value] = len(b.Value.Uses)
		}
		if left[b.Value]--; left[b.Value] == 0 && !b.Value.Output {
			l.dropStored(b.Value)
		}
	}
}

func (l *placing) dropStored(v *graph.Value) {
	if v.Node != nil {
		l.copy.Drop(v.Node)
		return
	}
	l.dropped[v] = true
}
