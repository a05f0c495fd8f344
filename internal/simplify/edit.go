package simplify

import (
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// editor changes a copy of the graph.
type editor struct {
	*graph.Graph
	find   *finder
	model  *Model
	copy   *graph.Copy                 // nil until something changes
	stale  map[int]map[string]bool     // names that no node makes any more, by number of the graph
	fronts map[int][]*onnxpb.NodeProto // new Constants, by number of the graph; by -1-index in functions
}

func (e *editor) copied() *graph.Copy {
	if e.copy == nil {
		e.copy = e.Graph.Copy()
	}
	return e.copy
}

// apply lets a product take in the nodes around it.
func (e *editor) apply(s *site) {
	c := e.copied()
	n := c.Node(s.node)
	if s.front != nil {
		n.Input[0] = s.front.Input[0]
		e.drop(s.front)
	}
	if s.weight.sole {
		for _, pass := range s.weight.chain {
			c.Drop(pass)
			e.forget(e.Made(pass))
		}
	}
	n.Input[1] = e.store(s.weight.root, s.weight.sole, s.weightTensor())
	if s.bias < 0 {
		e.sum(s, n)
	} else {
		e.bias(s, n)
	}
}

// drop removes a node that was folded.
func (e *editor) drop(n *onnxpb.NodeProto) {
	e.copied().Drop(n)
	e.model.Nodes[n.GetOpType()]++
	for _, v := range e.Outputs(n) {
		e.forget(v)
	}
}

// forget removes the declaration of a value that nothing makes any more. A later node may make it.
func (e *editor) forget(v *graph.Value) {
	if v == nil || v.Graph == nil {
		return
	}
	number := e.copied().GraphNumber(v.Graph)
	if e.stale[number] == nil {
		e.stale[number] = map[string]bool{}
	}
	e.stale[number][v.Name] = true
}

// weightTensor is the weight of a site with its factors.
func (s *site) weightTensor() *tensor {
	return &tensor{dtype: s.weight.dtype, dims: s.weight.dims, site: s}
}

// bias gives a product the bias with what was taken in, and the name of the last value.
func (e *editor) bias(s *site, n *onnxpb.NodeProto) {
	for len(n.Input) <= s.bias {
		n.Input = append(n.Input, "")
	}
	if s.needsSum() || s.had != nil {
		n.Input[s.bias] = e.biasOf(s, s.had)
		n.Attribute = slices.DeleteFunc(slices.Clone(n.Attribute), func(a *onnxpb.AttributeProto) bool { return a.GetName() == "beta" })
	} else {
		n.Input = n.Input[:s.bias]
	}
	e.rename(s, n)
}

// rename gives the product the output of the last step. The steps go.
func (e *editor) rename(s *site, n *onnxpb.NodeProto) {
	if len(s.steps) == 0 {
		return
	}
	e.forget(e.Made(s.node))
	for _, step := range s.steps {
		e.drop(step)
	}
	n.Output = []string{s.steps[len(s.steps)-1].Output[0]}
}

// biasOf stores the bias, in the place of a constant that it replaces, if there is one.
func (e *editor) biasOf(s *site, old *numbers) string {
	t := &tensor{dtype: s.weight.dtype, dims: []int64{s.out}, values: s.biases()}
	if old != nil && old.root != nil {
		return e.store(old.root, old.sole, t)
	}
	name := s.weight.root.Name
	if short, ok := strings.CutSuffix(name, ".weight"); ok {
		name = short + ".bias"
	} else {
		name += "_bias"
	}
	return e.add(name, s.weight.root, t)
}

// sum writes the Add behind a MatMul, if it has a bias.
func (e *editor) sum(s *site, n *onnxpb.NodeProto) {
	if !s.needsSum() {
		e.rename(s, n)
		return
	}
	c, last := e.copied(), e.Made(s.node)
	if len(s.steps) > 0 {
		last = e.Made(s.steps[len(s.steps)-1])
	}
	n.Output = []string{e.nameProduct(s, last)}
	if len(s.steps) == 0 { // only a front
		add := &onnxpb.NodeProto{OpType: new("Add"), Name: new(c.Names.Fresh(graph.Label(s.node) + "_add")), Output: []string{last.Name}}
		add.Input, add.Attribute = []string{n.Output[0], e.biasOf(s, nil)}, e.sumAttributes(s)
		c.AddBehind(n, add)
		return
	}
	kept := s.sum
	if kept == nil {
		kept = s.steps[len(s.steps)-1]
	}
	for _, step := range s.steps {
		if step != kept {
			e.drop(step)
		}
	}
	if kept.GetOpType() == "BatchNormalization" {
		e.model.Nodes["BatchNormalization"]++
	}
	if e.Made(kept) != last {
		e.forget(e.Made(kept))
	}
	add := c.Node(kept)
	add.OpType, add.Output = new("Add"), []string{last.Name}
	add.Input, add.Attribute = []string{n.Output[0], e.biasOf(s, s.added)}, e.sumAttributes(s)
}

// nameProduct names what a MatMul makes. It keeps the name of a value only if it has its elements: ranges go by
// names.
func (e *editor) nameProduct(s *site, last *graph.Value) string {
	v := e.Made(s.node)
	if s.equal != nil {
		if s.equal != v {
			e.forget(v)
		}
		return s.equal.Name
	}
	if len(s.steps) > 0 {
		e.forget(v)
	}
	name := e.copied().Names.Fresh(v.Name + "_folded")
	made := NewValue{Path: pathBeside(v, name), Sum: last.Path, Factors: bounds(s.scale), Added: bounds(s.biases())}
	if s.front == nil {
		made.Of = v.Path
	}
	e.model.New = append(e.model.New, made)
	return name
}

// pathBeside is the path of the value with this name in the graph of v.
func pathBeside(v *graph.Value, name string) string {
	return strings.TrimSuffix(v.Path, v.Name) + name
}

func bounds(list []float64) [2]float64 { return [2]float64{slices.Min(list), slices.Max(list)} }

// sumAttributes are the attributes with which an Add broadcasts its second input along the last axis.
func (e *editor) sumAttributes(s *site) []*onnxpb.AttributeProto {
	if e.find.opsetOf(s.node) >= 7 {
		return nil
	}
	return []*onnxpb.AttributeProto{{Name: new("broadcast"), Type: onnxpb.AttributeProto_INT.Enum(), I: new(int64(1))}}
}

// tensor is a new stored tensor: the weight of a site, or values.
type tensor struct {
	dtype  dtype.DType
	dims   []int64
	site   *site
	values []float64
}

// proto makes the message of a tensor.
func (e *editor) proto(name string, t *tensor) *onnxpb.TensorProto {
	made := &onnxpb.TensorProto{Name: &name, DataType: new(int32(t.dtype)), Dims: slices.Clone(t.dims)}
	if t.site != nil {
		e.copied().Fill(made, t.site.content())
		return made
	}
	x := make([]float32, len(t.values))
	for i, v := range t.values {
		x[i] = float32(v)
	}
	made.RawData = make([]byte, t.dtype.Bytes(int64(len(x))))
	t.dtype.Encode(made.RawData, x)
	return made
}

// store stores a tensor in the place of old, if nothing else reads that, else beside it.
func (e *editor) store(old *graph.Value, sole bool, t *tensor) string {
	if !sole {
		return e.add(old.Name+"_folded", old, t)
	}
	c := e.copied()
	made := e.proto(old.Name, t)
	e.forget(old)
	if old.Node != nil {
		n := c.Node(old.Node)
		made.Name = nil
		n.Attribute = []*onnxpb.AttributeProto{{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: made}}
		return old.Name
	}
	g := c.Graphs()[c.GraphNumber(old.Graph)]
	i := slices.IndexFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return t.GetName() == old.Name })
	g.Initializer[i] = made
	if i := slices.IndexFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == old.Name }); i >= 0 {
		g.Input[i] = infoOf(old.Name, t)
	}
	return old.Name
}

// add stores a tensor under a new name, in the graph of another one and in the same way.
func (e *editor) add(name string, beside *graph.Value, t *tensor) string {
	c := e.copied()
	name = c.Names.Fresh(name)
	made := e.proto(name, t)
	if beside.Node != nil {
		number := e.place(beside)
		made.Name = nil
		e.fronts[number] = append(e.fronts[number], &onnxpb.NodeProto{OpType: new("Constant"), Name: new(c.Names.Fresh(name + "_constant")), Output: []string{name},
			Attribute: []*onnxpb.AttributeProto{{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: made}}})
		return name
	}
	g := c.Graphs()[c.GraphNumber(beside.Graph)]
	g.Initializer = append(g.Initializer, made)
	if beside.Input && beside.MustBeInput || beside.Graph == e.File.Proto.Graph && e.File.Proto.GetIrVersion() < opset.FreeInitializers {
		g.Input = append(g.Input, infoOf(name, t))
	}
	return name
}

// place numbers the graph or the function of a value.
func (e *editor) place(v *graph.Value) int {
	if v.Graph != nil {
		return e.copied().GraphNumber(v.Graph)
	}
	return -1 - v.Body.Index
}

func infoOf(name string, t *tensor) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range t.dims {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(t.dtype)), Shape: shape},
	}}}
}

// finish inserts and removes nodes, and removes declarations of values that nothing makes any more.
func (e *editor) finish() {
	for number, nodes := range e.fronts {
		if number < 0 {
			fn := e.copy.Proto.Functions[-1-number]
			fn.Node = append(nodes, fn.Node...)
		} else {
			g := e.copy.Graphs()[number]
			g.Node = append(nodes, g.Node...)
		}
	}
	e.copy.Tidy()
	for number, names := range e.stale {
		g := e.copy.Graphs()[number]
		made := map[string]bool{}
		for _, n := range g.Node {
			for _, name := range n.Output {
				made[name] = true
			}
		}
		g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool { return names[v.GetName()] && !made[v.GetName()] })
	}
	e.sweep()
	e.copy.Sort()
}
