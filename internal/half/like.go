package half

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/optypes"
)

// Like converts x in the way y was converted: y comes from x and has float16 or bfloat16 where x has
// float32. The nodes that stay in float32 are read off y. Like returns nil if y has no half where x
// has float32.
func Like(x, y *graph.Graph) (*Model, error) {
	if !MayHold(y.File.Proto) {
		return nil, nil
	}
	l := &likeness{x: typesOf(x), y: typesOf(y), named: map[string]*graph.Value{}}
	for v := range l.y.homes {
		l.named[v.Path] = v
	}
	opts := Options{To: l.to(), KeepIO: l.keepsIO(), Clamp: true}
	if opts.To == 0 {
		return nil, nil
	}
	l.half = opts.To
	far := map[*graph.Value]string{}
	for _, v := range x.Values {
		if w := l.named[v.Path]; w != nil && l.x.types[v].float() && l.y.types[w].float() {
			far[v] = "stays in float32 in the other model"
		}
	}
	return build(choose(&choice{typing: l.x, opts: opts, far: far, decided: l.staysFloat, otherHalf: l.makesHalf}))
}

// MayHold reports whether a model may have half values: a tensor, a declared type or an attribute
// names half.
func MayHold(m *onnxpb.ModelProto) bool {
	for _, t := range modelfile.Tensors(m) {
		if isHalf(int64(t.GetDataType())) {
			return true
		}
	}
	found := false
	types := func(infos []*onnxpb.ValueInfoProto) {
		for _, info := range infos {
			t := info.GetType()
			found = found || t != nil && t.GetTensorType() == nil || isHalf(int64(t.GetTensorType().GetElemType()))
		}
	}
	attributes := func(list []*onnxpb.AttributeProto) {
		for _, a := range list {
			found = found || a.GetTp() != nil || isHalf(a.GetI())
		}
	}
	graph.WalkAllGraphs(m, func(g *onnxpb.GraphProto) {
		types(g.Input)
		types(g.Output)
		types(g.ValueInfo)
	})
	for _, f := range m.Functions {
		types(f.ValueInfo)
		attributes(f.AttributeProto)
	}
	graph.WalkNodes(m, func(n *onnxpb.NodeProto) { attributes(n.Attribute) })
	return found
}

// isHalf reports whether a number stands for a type of half.
func isHalf(typ int64) bool {
	return typ == int64(dtype.Float16) || typ == int64(dtype.BFloat16)
}

// likeness finds what became half between x and y.
type likeness struct {
	x, y  *typing
	named map[string]*graph.Value // values of y
	half  dtype.DType
}

// to returns the type that float32 became, 0 if it did not.
func (l *likeness) to() dtype.DType {
	counts := map[dtype.DType]int{}
	for v, e := range l.x.types {
		if !e.float() {
			continue
		}
		for _, name := range l.names(v) {
			if w := l.named[name]; w != nil {
				counts[l.y.types[w].dtype]++
			}
		}
	}
	switch {
	case counts[dtype.Float16]+counts[dtype.BFloat16] == 0:
		return 0
	case counts[dtype.Float16] >= counts[dtype.BFloat16]:
		return dtype.Float16
	}
	return dtype.BFloat16
}

// keepsIO reports whether the inputs and outputs of y are in float32.
func (l *likeness) keepsIO() bool {
	g := l.x.x.File.Proto.Graph
	scope := l.y.x.Scope(l.y.x.File.Proto.Graph)
	for _, infos := range [][]*onnxpb.ValueInfoProto{graph.RuntimeInputs(g), g.Output} {
		for _, info := range infos {
			v := scope.Values[info.GetName()]
			if v != nil && typeOf(info.GetType()).float() && !l.y.types[v].float() {
				return false
			}
		}
	}
	return true
}

// names lists the names that a value of x may have in y. Where a Cast makes an output of the model,
// the Cast takes the output's name.
func (l *likeness) names(v *graph.Value) []string {
	name := v.Path
	if !v.Output {
		return []string{name}
	}
	return []string{name + "_float16", name + "_bfloat16", name + "_float", name}
}

// partner returns the node of y that corresponds to a node of x: a node with the same outputs.
func (l *likeness) partner(n *onnxpb.NodeProto) *onnxpb.NodeProto {
	for _, v := range l.x.x.Outputs(n) {
		if v == nil {
			continue
		}
		for _, name := range l.names(v) {
			w := l.named[name]
			if w != nil && w.Node != nil && w.Node.GetOpType() == n.GetOpType() && graph.SameDomain(w.Node.GetDomain(), n.GetDomain()) {
				return w.Node
			}
		}
	}
	return nil
}

// staysFloat reports whether a node stays in float32: in y it reads or makes float32 where the
// operator's type is a variable.
func (l *likeness) staysFloat(n *onnxpb.NodeProto) (stays, known bool) {
	if flexible(n) {
		return false, true
	}
	m := l.partner(n)
	if m == nil {
		return false, false
	}
	s := l.x.signature(n)
	float, halves := l.count(l.x.x.Outputs(n), l.y.x.Outputs(m), s, (*optypes.Signature).Output)
	if float+halves == 0 {
		float, halves = l.count(l.x.x.Inputs(n), l.y.x.Inputs(m), s, (*optypes.Signature).Input)
	}
	return float > 0 && halves == 0, float+halves > 0
}

// makesHalf reports whether a flexible node makes half in y. It is not known if y lacks the node.
func (l *likeness) makesHalf(n *onnxpb.NodeProto) (half, known bool) {
	m := l.partner(n)
	if m == nil || l.y.x.Made(m) == nil {
		return false, false
	}
	made := l.y.types[l.y.x.Made(m)].dtype
	return made == l.half, made == l.half || made == dtype.Float32
}

// count counts the float32 values of a node of x by their type in y, where the operator allows both
// types.
func (l *likeness) count(x, y []*graph.Value, s *optypes.Signature, param func(*optypes.Signature, int) (optypes.Param, bool)) (float, halves int) {
	for i, v := range x {
		if v == nil || i >= len(y) || y[i] == nil || !l.x.types[v].float() {
			continue
		}
		if s != nil {
			if p, ok := param(s, i); !ok || p.Variable == "" || !s.Allows(p).Has(l.half) {
				continue
			}
		}
		switch l.y.types[y[i]].dtype {
		case dtype.Float32:
			float++
		case l.half:
			halves++
		}
	}
	return float, halves
}
