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
}

// params are the names of a scale and a zero point.
type params struct{ scale, zero string }

// declare declares a value that codes will make while the opset is raised: the adapters of opsets need
// its type. A nil shape is not known.
func (r *rewriting) declare(name string, shape *onnxpb.TensorShapeProto) {
	typ := &onnxpb.TypeProto_Tensor{ElemType: new(int32(dtype.Float32)), Shape: shape}
	r.declared[name] = true
	g := r.copy.Proto.Graph
	g.ValueInfo = append(g.ValueInfo, &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: typ}}})
}

// place applies the plan. Operators then read new names, and r.placed has the new tensors and
// nodes. It returns the least opset that they need.
func (r *rewriting) place(p *actpairs.Plan) (need int64) {
	r.placed = form.NewBuilder(r.copy.Names)
	if p == nil {
		return 0
	}
	l := &placing{r, r.placed, map[*actpairs.Tensor]params{}}
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
		if t.Stored == nil {
			l.activation(t)
		}
	}
	for _, b := range p.Biases {
		l.bias(b)
	}
	l.dropBiases(p)
	undeclare(r.copy.Proto.Graph, r.undeclared)
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

// activation adds the pair of an activation. All its readers in the main graph then read the output
// of the pair. If the activation is an output of the graph, callers do, too.
func (l *placing) activation(t *actpairs.Tensor) {
	v, x := t.Value, l.copy.Original
	p := l.params(t)
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
	codes := l.b.Value(v.Name, "QuantizeLinear", []string{source, p.scale, p.zero})
	l.b.Node(v.Name, "DequantizeLinear", result, []string{codes, p.scale, p.zero})
	l.declare(result, nil)
	if result != v.Name {
		l.decoded[result] = source
	}
	for _, u := range v.Uses {
		if x.Home(u.Node) == x.Scope(x.File.Proto.Graph) {
			l.copy.Node(u.Node).Input[u.Input] = result
		}
	}
}

// rename renames the output of a node.
func (l *placing) rename(v *graph.Value, name string) {
	i := slices.Index(l.copy.Original.Outputs(v.Node), v)
	l.copy.Node(v.Node).Output[i] = name
}

// undeclare removes the declarations of values.
func undeclare(g *onnxpb.GraphProto, names map[string]bool) {
	g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool { return names[v.GetName()] })
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
		r.declare(t.Value.Name, shape)
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
	result := l.b.Value(name, "DequantizeLinear", []string{codes.GetName(), scale.GetName(), zero}, attrs...)
	l.declare(result, nil)
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
