package compare

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/formats/errstat"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/restyle"
	"onnxquant/onnxq/spec"
)

// Match tells whether two float models are the same but for their weights, and
// how far the weights are from each other.
type Match struct {
	// Problems are differences of what the models compute, other than weights: an
	// input or output that is gone or has another type, a node that is gone, new, or
	// does something else.
	Problems []string `json:"problems"`

	// Notes are differences that change nothing of that: a higher opset, with the
	// nodes that had to be written in another way for it, names, metadata.
	Notes []string `json:"notes"`

	Nodes   int           `json:"nodes"`   // of the first model, in its main graph and the graphs of its nodes
	Weights []WeightMatch `json:"weights"` // float constants that nodes read or graphs return, and that differ or were quantized
	Same    int           `json:"same"`    // float constants that are equal
}

// WeightMatch compares a weight w of the first model with the v of the second.
type WeightMatch struct {
	Name  string  `json:"name"` // in the first model, with the subgraphs it lies in
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`

	Form     string `json:"form"` // what v was decoded by: of QuantizedWeight, or "float"
	CodeType string `json:"code_type,omitempty"`

	MaxError float64 `json:"max_error"` // the largest |w - v|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"`          // 10·log10(mean w² / MSE); 999 stands for no error
	Broken   int64   `json:"broken,omitempty"` // elements of which one is NaN or infinite, and the other is not the same; in none of the sums

	Worst *BlockMatch `json:"worst_block,omitempty"` // the block with the lowest SQNR, if there are any errors
}

// BlockMatch is a block of elements that share a scale.
type BlockMatch struct {
	At       []int64 `json:"at"`   // index of its first element, in Shape
	Axis     int     `json:"axis"` // that it runs along
	Length   int64   `json:"length"`
	MaxError float64 `json:"max_error"`
	SQNR     float64 `json:"sqnr_db"`
}

// MatchWeights compares a float model a with b, the same model with other weights,
// as Dequantize writes it; folded tells what its weights were before that. Nodes
// are matched by their outputs. Models that are not folded, or other models, give
// problems, not an error.
func MatchWeights(ctx context.Context, a, b *onnxq.Model, folded []restyle.Weight) (*Match, error) {
	m := &matcher{
		ctx: ctx, a: recognize.New(a.Graph()), b: recognize.New(b.Graph()), names: map[string]restyle.Weight{}, seen: map[[2]*graph.Value]bool{},
		compared: map[string]bool{}, gone: map[*onnxpb.NodeProto]bool{}, fresh: map[*onnxpb.NodeProto]bool{},
		partner: map[*onnxpb.NodeProto]*onnxpb.NodeProto{}, steady: map[*graph.Value]bool{}, result: &Match{Problems: []string{}, Notes: []string{}, Weights: []WeightMatch{}},
	}
	for _, w := range folded {
		m.names[w.Became] = w
		if w.Reason != "" {
			m.note("%s stays %s, which cannot be decoded: %s", msg.Quote(w.Name), w.Form, w.Reason)
		}
	}
	m.a.Functions, m.b.Functions = true, true
	if err := m.models(a, b); err != nil {
		return nil, err
	}
	for _, w := range folded {
		if w.Reason == "" && !m.compared[w.Became] {
			m.problem("what %s stands for is not found", msg.Quote(w.Name))
		}
	}
	return m.result, nil
}

type matcher struct {
	ctx   context.Context
	a, b  *recognize.Recognizer
	names map[string]restyle.Weight // by the name of what the weight became
	seen  map[[2]*graph.Value]bool  // pairs compared

	compared map[string]bool // of names

	gone, fresh map[*onnxpb.NodeProto]bool              // nodes whose outputs the other model does not have
	partner     map[*onnxpb.NodeProto]*onnxpb.NodeProto // those of them that belong together all the same
	steady      map[*graph.Value]bool                   // whether constants determine a value
	raised      map[string]bool                         // operators that are another version's
	depth       int                                     // of what is followed
	result      *Match
}

// deepestMatch bounds how far values that are made of each other are followed: a model
// may be made to be one long chain.
const deepestMatch = 1 << 16

func (m *matcher) problem(format string, args ...any) {
	m.result.Problems = append(m.result.Problems, fmt.Sprintf(format, args...))
}

func (m *matcher) note(format string, args ...any) {
	m.result.Notes = append(m.result.Notes, fmt.Sprintf(format, args...))
}

func (m *matcher) models(a, b *onnxq.Model) error {
	x, y := a.Graph().File.Proto, b.Graph().File.Proto
	from, to := graph.Opset(x), graph.Opset(y)
	switch {
	case to > from && from > 0:
		m.note("opset %d -> %d", from, to)
		m.raised = map[string]bool{}
		for s := range opset.Steps() {
			m.raised[s.Op] = m.raised[s.Op] || s.Version > from && s.Version <= to
		}
	case to < from:
		m.problem("opset %d -> %d", from, to)
	}
	versions := map[string]int64{}
	for _, o := range y.OpsetImport {
		versions[o.GetDomain()] = o.GetVersion()
	}
	for _, o := range x.OpsetImport {
		if v, there := versions[o.GetDomain()]; there && v != o.GetVersion() && !graph.IsStandard(o.GetDomain()) {
			m.problem("operators of %s: version %d -> %d", msg.Quote(o.GetDomain()), o.GetVersion(), v)
		}
	}
	d := &differ{ctx: m.ctx, a: a.Graph().File, b: b.Graph().File, result: &Difference{}}
	for _, part := range []struct {
		x, y   protoreflect.Message
		fields []protoreflect.Name
		report func(string, ...any)
	}{
		{x.ProtoReflect(), y.ProtoReflect(), []protoreflect.Name{"training_info"}, m.problem},
		{x.Graph.ProtoReflect(), y.Graph.ProtoReflect(), []protoreflect.Name{"sparse_initializer"}, m.problem},
		{x.ProtoReflect(), y.ProtoReflect(), []protoreflect.Name{"producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"}, m.note},
		{x.Graph.ProtoReflect(), y.Graph.ProtoReflect(), []protoreflect.Name{"name", "doc_string", "metadata_props"}, m.note},
	} {
		d.result.Changes = nil
		for _, f := range part.fields {
			if err := d.field("", part.x.Descriptor().Fields().ByName(f), part.x, part.y); err != nil {
				return err
			}
		}
		for _, c := range d.result.Changes {
			part.report("%s", c.String())
		}
	}
	if err := m.functions(x, y); err != nil {
		return err
	}
	return m.graphs("", x.Graph, y.Graph, m.problem)
}

// functions compares the functions of the models.
func (m *matcher) functions(x, y *onnxpb.ModelProto) error {
	others := map[string]*onnxpb.FunctionProto{}
	for _, f := range y.Functions {
		others[graph.FunctionKey(f.GetDomain(), f.GetName(), f.GetOverload())] = f
	}
	for _, f := range x.Functions {
		key := graph.FunctionKey(f.GetDomain(), f.GetName(), f.GetOverload())
		where := fmt.Sprintf("function %s: ", msg.Quote(f.GetName()))
		g := others[key]
		if g == nil {
			m.problem("%sit is gone", where)
			continue
		}
		delete(others, key)
		if err := m.function(where, f, g); err != nil {
			return err
		}
	}
	for _, f := range others {
		m.problem("function %s: it is new", msg.Quote(f.GetName()))
	}
	return nil
}

func (m *matcher) function(where string, x, y *onnxpb.FunctionProto) error {
	d := &differ{ctx: m.ctx, a: m.a.Graph.File, b: m.b.Graph.File, result: &Difference{}}
	p, q := x.ProtoReflect(), y.ProtoReflect()
	for _, name := range []protoreflect.Name{"input", "output", "attribute", "attribute_proto"} {
		if err := d.field("", p.Descriptor().Fields().ByName(name), p, q); err != nil {
			return err
		}
	}
	for _, c := range d.result.Changes {
		m.problem("%s%s", where, c.String())
	}
	if err := m.graphs(where, &onnxpb.GraphProto{Node: x.Node}, &onnxpb.GraphProto{Node: y.Node}, m.problem); err != nil {
		return err
	}
	for _, name := range x.Output { // constants may be among them
		v, w := madeIn(m.a.Graph, x, name), madeIn(m.b.Graph, y, name)
		if v == nil || w == nil || !m.isSteady(v) || !m.isSteady(w) {
			continue
		}
		if err := m.constants(where+"output "+msg.Quote(name), v, w, false, m.problem); err != nil {
			return err
		}
	}
	return nil
}

// madeIn finds a value that a node of a function makes.
func madeIn(x *graph.Graph, f *onnxpb.FunctionProto, name string) *graph.Value {
	for _, n := range f.Node {
		for _, v := range x.Outputs[n] {
			if v != nil && v.Name == name {
				return v
			}
		}
	}
	return nil
}

// graphs compares two graphs, and reports what differs in their inputs and outputs.
func (m *matcher) graphs(where string, x, y *onnxpb.GraphProto, report func(string, ...any)) error {
	m.ends(where, "input", graph.RuntimeInputs(x), graph.RuntimeInputs(y), report)
	m.ends(where, "output", x.Output, y.Output, report)
	makers := map[string]*onnxpb.NodeProto{}
	for _, n := range y.Node {
		makers[keyOf(n)] = n
	}
	var pairs [][2]*onnxpb.NodeProto
	for _, n := range y.Node {
		m.fresh[n] = true
	}
	for _, n := range x.Node {
		m.result.Nodes++
		other := makers[keyOf(n)]
		if other == nil {
			m.gone[n] = true
			continue
		}
		delete(m.fresh, other)
		delete(m.fresh, m.product(n, other))
		pairs = append(pairs, [2]*onnxpb.NodeProto{n, other})
	}
	for _, p := range pairs {
		if err := m.nodes(where, p[0], p[1]); err != nil {
			return err
		}
	}
	if err := m.results(where, x, y, report); err != nil {
		return err
	}
	for _, n := range x.Node {
		if m.gone[n] && !m.isSteady(m.a.Graph.Made(n)) {
			m.problem("%s%s is gone", where, graph.Describe(n))
		}
	}
	for _, n := range y.Node {
		if !m.fresh[n] || m.isSteady(m.b.Graph.Made(n)) {
			continue
		}
		if m.raised != nil {
			m.note("%s%s is new", where, graph.Describe(n))
		} else {
			m.problem("%s%s is new", where, graph.Describe(n))
		}
	}
	return nil
}

// ends compares the inputs or outputs of graphs.
func (m *matcher) ends(where, kind string, x, y []*onnxpb.ValueInfoProto, report func(string, ...any)) {
	types := func(infos []*onnxpb.ValueInfoProto) map[string]*onnxpb.ValueInfoProto {
		byName := map[string]*onnxpb.ValueInfoProto{}
		for _, i := range infos {
			byName[i.GetName()] = i
		}
		return byName
	}
	was, is := types(x), types(y)
	for _, i := range x {
		switch other := is[i.GetName()]; {
		case other == nil:
			report("%s%s %s is gone", where, kind, msg.Quote(i.GetName()))
		case !sameType(i.GetType(), other.GetType()):
			report("%s%s %s: %s -> %s", where, kind, msg.Quote(i.GetName()), graph.TypeText(i.GetType()), graph.TypeText(other.GetType()))
		case !proto.Equal(i.GetType(), other.GetType()):
			m.note("%s%s %s: %s -> %s", where, kind, msg.Quote(i.GetName()), graph.TypeText(i.GetType()), graph.TypeText(other.GetType()))
		}
	}
	for _, i := range y {
		if was[i.GetName()] == nil {
			report("%s%s %s is new", where, kind, msg.Quote(i.GetName()))
		}
	}
	name := func(i, j *onnxpb.ValueInfoProto) bool { return i.GetName() == j.GetName() }
	if len(was) == len(is) && !slices.EqualFunc(x, y, name) {
		report("%s%ss are in another order", where, kind)
	}
}

// results compares those outputs of graphs that constants determine; the nodes that
// make others are compared as such.
func (m *matcher) results(where string, x, y *onnxpb.GraphProto, report func(string, ...any)) error {
	named := map[string]*graph.Value{}
	for _, w := range m.b.Graph.Returned[y] {
		named[w.Name] = w
	}
	for _, v := range m.a.Graph.Returned[x] {
		w := named[v.Name]
		if w == nil {
			continue
		}
		place := where + "output " + msg.Quote(v.Name)
		switch steady := m.isSteady(v); {
		case steady != m.isSteady(w):
			report("%s is a constant in one model only", place)
		case steady:
			if err := m.constants(place, v, w, false, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameType reports whether two types differ in no more than what they say of
// dimensions that are not fixed.
func sameType(x, y *onnxpb.TypeProto) bool {
	a, b := x.GetTensorType(), y.GetTensorType()
	if a == nil || b == nil {
		return proto.Equal(x, y)
	}
	open := func(d *onnxpb.TensorShapeProto_Dimension) bool {
		_, fixed := d.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
		return !fixed
	}
	return a.GetElemType() == b.GetElemType() && (a.Shape == nil || b.Shape == nil ||
		slices.EqualFunc(a.Shape.Dim, b.Shape.Dim, func(d, e *onnxpb.TensorShapeProto_Dimension) bool {
			return open(d) || open(e) || d.GetDimValue() == e.GetDimValue()
		}))
}

// isSteady reports whether constants alone determine a value. Initializers that an
// input could replace count: what they hold is to be the same too.
func (m *matcher) isSteady(v *graph.Value) bool {
	if v == nil {
		return false
	}
	if known, ok := m.steady[v]; ok {
		return known
	}
	if m.depth++; m.depth > deepestMatch {
		m.depth--
		return false
	}
	defer func() { m.depth-- }()
	m.steady[v] = false // until it is found; the graph has no cycles
	steady := v.Tensor != nil
	if n := v.Node; n != nil && !steady && !slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetRefAttrName() != "" }) {
		index := m.a.Graph
		if index.Home[n] == nil {
			index = m.b.Graph
		}
		steady = !strings.HasPrefix(n.GetOpType(), "Random") && n.GetOpType() != "Bernoulli" && n.GetOpType() != "Multinomial" &&
			!slices.ContainsFunc(n.Attribute, func(a *onnxpb.AttributeProto) bool { return len(graph.Subgraphs(a)) > 0 }) &&
			!slices.ContainsFunc(index.Inputs[n], func(in *graph.Value) bool { return in != nil && !m.isSteady(in) })
	}
	m.steady[v] = steady
	return steady
}

// product returns the node that multiplies, where a Gemm of the first model is a
// MatMul with an Add behind it in the second, as folding a MatMulNBits gives.
func (m *matcher) product(x, y *onnxpb.NodeProto) *onnxpb.NodeProto {
	if x.GetOpType() != "Gemm" || y.GetOpType() != "Add" || !graph.IsStandard(x.GetDomain()) || !graph.IsStandard(y.GetDomain()) {
		return nil
	}
	v := m.b.Graph.Source(y, 0)
	if v == nil || v.Node == nil || v.Node.GetOpType() != "MatMul" || len(v.Uses) != 1 {
		return nil
	}
	return v.Node
}

// nodes compares two nodes that make the same value.
func (m *matcher) nodes(where string, x, y *onnxpb.NodeProto) error {
	if m.isSteady(m.a.Graph.Made(x)) && m.isSteady(m.b.Graph.Made(y)) {
		return nil // what they make is compared where it is read
	}
	report := m.problem
	if m.rewritable(x) {
		rewritten := false
		report = func(string, ...any) { rewritten = true }
		defer func() {
			if rewritten {
				m.note("%s%s is written as opset %d has it", where, graph.Describe(x), m.b.Graph.Opset)
			}
		}()
	}
	if x.GetName() != y.GetName() {
		m.note("%s%s is called %s", where, graph.Describe(x), msg.Quote(y.GetName()))
	}
	if x.GetOpType() == "Gemm" && graph.IsStandard(x.GetDomain()) {
		if done, err := m.gemm(where, x, y); done || err != nil {
			return err
		}
	}
	if x.GetOpType() != y.GetOpType() || !graph.SameDomain(x.GetDomain(), y.GetDomain()) {
		report("%s%s is %s", where, graph.Describe(x), msg.Clean(graph.Operator(y)))
		return nil
	}
	if !slices.Equal(x.Output, y.Output) && m.partner[x] == nil {
		report("%s%s: outputs %s -> %s", where, graph.Describe(x), namesText(x.Output), namesText(y.Output))
	}
	if err := m.attributes(where, x, y, report); err != nil {
		return err
	}
	swapped := m.swapped(x, y)
	for i := range max(len(x.Input), len(y.Input)) {
		j := i
		if swapped {
			j = 1 - i
		}
		if err := m.inputs(where, x, y, i, j, false, report); err != nil {
			return err
		}
	}
	return nil
}

// swapped reports whether two sums or products have a constant first and last.
func (m *matcher) swapped(x, y *onnxpb.NodeProto) bool {
	if x.GetOpType() != "Add" && x.GetOpType() != "Mul" || len(x.Input) != 2 || len(y.Input) != 2 {
		return false
	}
	a, b := m.a.Graph, m.b.Graph
	first := m.isSteady(a.Source(x, 0))
	return first != m.isSteady(a.Source(x, 1)) && first == m.isSteady(b.Source(y, 1)) && first != m.isSteady(b.Source(y, 0))
}

// rewritable reports whether a higher opset may want a node written in another way:
// its operator changed, or is none of the standard's.
func (m *matcher) rewritable(n *onnxpb.NodeProto) bool {
	if m.raised == nil || !graph.IsStandard(n.GetDomain()) {
		return false
	}
	changed, known := m.raised[n.GetOpType()]
	return changed || !known
}

// gemm compares a Gemm with the MatMul, or MatMul and Add, that stand for it. It
// reports whether they do.
func (m *matcher) gemm(where string, x, y *onnxpb.NodeProto) (bool, error) {
	sum := y
	if product := m.product(x, y); product != nil {
		y = product
	} else if y.GetOpType() != "MatMul" || !graph.IsStandard(y.GetDomain()) {
		return false, nil
	}
	if graph.IntAttribute(x, "transA") != 0 || graph.FloatAttributeOr(x, "alpha", 1) != 1 || graph.FloatAttributeOr(x, "beta", 1) != 1 || graph.HasInput(x, 2) != (sum != y) {
		m.problem("%s%s is a %s that computes something else", where, graph.Describe(x), msg.Clean(y.GetOpType()))
		return true, nil
	}
	m.note("%s%s is a MatMul", where, graph.Describe(x))
	err := m.inputs(where, x, y, 0, 0, false, m.problem)
	if err == nil {
		err = m.inputs(where, x, y, 1, 1, graph.IntAttribute(x, "transB") != 0, m.problem)
	}
	if err == nil && sum != y {
		err = m.inputs(where, x, sum, 2, 1, false, m.problem)
	}
	return true, err
}

// attributes compares those of two nodes, with the graphs that they hold.
func (m *matcher) attributes(where string, x, y *onnxpb.NodeProto, report func(string, ...any)) error {
	for _, a := range x.Attribute {
		b := graph.Attribute(y, a.GetName())
		gs := graph.Subgraphs(a)
		switch {
		case b == nil:
			report("%s%s: attribute %s is gone", where, graph.Describe(x), msg.Quote(a.GetName()))
		case len(gs) > 0 && len(gs) == len(graph.Subgraphs(b)):
			for i, g := range gs {
				if err := m.graphs(where+graph.Describe(x)+", "+msg.Clean(a.GetName())+": ", g, graph.Subgraphs(b)[i], report); err != nil {
					return err
				}
			}
		default:
			d := &differ{ctx: m.ctx, a: m.a.Graph.File, b: m.b.Graph.File, result: &Difference{}}
			if err := d.message("attribute "+msg.Quote(a.GetName()), a.ProtoReflect(), b.ProtoReflect()); err != nil {
				return err
			}
			for _, c := range d.result.Changes {
				report("%s%s: %s", where, graph.Describe(x), c.String())
			}
		}
	}
	for _, b := range y.Attribute {
		if graph.Attribute(x, b.GetName()) == nil && !isDefault(y, b) {
			report("%s%s: attribute %s is new", where, graph.Describe(x), msg.Quote(b.GetName()))
		}
	}
	return nil
}

// isDefault reports whether a node would do the same without an attribute.
func isDefault(n *onnxpb.NodeProto, a *onnxpb.AttributeProto) bool {
	return n.GetOpType() == "Gather" && a.GetName() == "axis" && a.GetI() == 0
}

// inputs compares input i of a node with input j of the other, of which the first
// may be read as its transpose.
func (m *matcher) inputs(where string, x, y *onnxpb.NodeProto, i, j int, turned bool, report func(string, ...any)) error {
	v, w := m.a.Graph.Source(x, i), m.b.Graph.Source(y, j)
	switch {
	case v == nil && w == nil:
		return nil
	case v == nil || w == nil:
		report("%s%s: input %d is there only once", where, graph.Describe(x), i)
		return nil
	case m.isSteady(v) && m.isSteady(w):
		return m.constants(where+graph.Describe(x), v, w, turned, report)
	case v.Name == w.Name && m.isSteady(v) != m.isSteady(w):
		report("%s%s: input %d, %s, is a constant in one model only", where, graph.Describe(x), i, msg.Quote(v.Name))
		return nil
	case v.Name == w.Name || v.Node != nil && m.partner[v.Node] == w.Node && w.Node != nil:
		return nil
	case m.gone[v.Node] && m.fresh[w.Node] && v.Node.GetOpType() == w.Node.GetOpType() && len(v.Node.Output) == 1 && m.depth < deepestMatch:
		// The same value under another name.
		delete(m.gone, v.Node)
		delete(m.fresh, w.Node)
		m.partner[v.Node] = w.Node
		m.depth++
		defer func() { m.depth-- }()
		return m.nodes(where, v.Node, w.Node)
	}
	report("%s%s: input %d is %s, was %s", where, graph.Describe(x), i, msg.Quote(w.Name), msg.Quote(v.Name))
	return nil
}

// through2D looks behind transposes of matrices.
func through2D(f *recognize.Recognizer, v *graph.Value, turned bool) (*graph.Value, bool) {
	for v.Node != nil && v.Tensor == nil && graph.IsStandard(v.Node.GetDomain()) {
		n := v.Node
		perm := graph.Attribute(n, "perm").GetInts()
		switch from := f.Graph.Source(n, 0); {
		case from == nil:
			return v, turned
		case n.GetOpType() == "Transpose" && slices.Equal(perm, []int64{1, 0}), n.GetOpType() == "Transpose" && perm == nil && rankOf(f, from) == 2:
			v, turned = from, !turned
		default:
			return v, turned
		}
	}
	return v, turned
}

func rankOf(f *recognize.Recognizer, v *graph.Value) int {
	if c := f.Fold(v); c != nil {
		return len(c.Values.Shape)
	}
	return -1
}

// constants compares two values that constants determine.
func (m *matcher) constants(where string, v, w *graph.Value, turned bool, report func(string, ...any)) error {
	v, vt := through2D(m.a, v, turned)
	w, wt := through2D(m.b, w, false)
	if m.seen[[2]*graph.Value{v, w}] {
		return nil
	}
	m.seen[[2]*graph.Value{v, w}] = true
	x, y := m.a.Fold(v), m.b.Fold(w)
	if x == nil || y == nil {
		if v.Node != nil && w.Node != nil && v.Name == w.Name && v.Node.GetOpType() == w.Node.GetOpType() && vt == wt && m.depth < deepestMatch {
			m.depth++
			defer func() { m.depth-- }()
			return m.chain(where, v.Node, w.Node, report)
		}
		if v.Tensor != nil && w.Tensor != nil { // strings, and types that are no numbers here
			d := &differ{ctx: m.ctx, a: m.a.Graph.File, b: m.b.Graph.File, result: &Difference{}}
			err := d.tensor("", v.Tensor, w.Tensor)
			if len(d.result.Changes) > 0 {
				report("%s: %s is another constant", where, msg.Quote(v.Path))
			}
			return err
		}
		report("%s: whether %s is %s is hard to tell", where, msg.Quote(w.Path), msg.Quote(v.Path))
		return nil
	}
	shape := x.Values.Shape
	if vt != wt && len(shape) == 2 {
		shape = []int64{shape[1], shape[0]}
	}
	switch {
	case x.Values.DType != y.Values.DType || !slices.Equal(shape, y.Values.Shape):
		report("%s: %s is %v %v, was %v %v", where, msg.Quote(v.Path), y.Values.DType, y.Values.Shape, x.Values.DType, x.Values.Shape)
		return nil
	case !x.Values.DType.Float():
		same, err := m.equal(x, y)
		if err == nil && !same {
			report("%s: %s holds other numbers", where, msg.Quote(v.Path))
		}
		return err
	}
	return m.weights(v, w, x, y, vt != wt)
}

// chain compares two nodes that make the same constant.
func (m *matcher) chain(where string, x, y *onnxpb.NodeProto, report func(string, ...any)) error {
	if err := m.attributes(where+": ", x, y, report); err != nil {
		return err
	}
	for i := range max(len(x.Input), len(y.Input)) {
		v, w := m.a.Graph.Source(x, i), m.b.Graph.Source(y, i)
		switch {
		case v == nil && w == nil:
		case v == nil || w == nil:
			report("%s: %s: input %d is there only once", where, graph.Describe(x), i)
		default:
			if err := m.constants(where, v, w, false, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// equal compares what two constants store, or else compute.
func (m *matcher) equal(x, y *recognize.Constant) (bool, error) {
	if x.Values.Stored != nil && y.Values.Stored != nil {
		size := x.Values.DType.Bytes(x.Values.Size())
		if size != y.Values.DType.Bytes(y.Values.Size()) {
			return false, nil
		}
		const stretch = 1 << 20
		var a, b []byte
		for off := int64(0); off < size; off += stretch {
			n := min(stretch, size-off)
			p, q := buffer.Grow(&a, n), buffer.Grow(&b, n)
			if err := cmp.Or(buffer.ReadFull(x.Values.Stored, p, off), buffer.ReadFull(y.Values.Stored, q, off)); err != nil || !bytes.Equal(p, q) {
				return false, err
			}
		}
		return true, nil
	}
	e := &measurement{blocks: oneBlock(x.Values.Shape)}
	err := m.measure(e, x, y.Values)
	return err == nil && e.all.SumSqErr == 0 && e.broken == 0, err
}

// key is what a restyle.Weight says that a weight became: the name of a value, and
// where several functions may have one of that name, the way there too.
func keyOfValue(v *graph.Value) string {
	if v.Body != nil {
		return v.Path
	}
	return v.Name
}

// weights compares a weight with what stands for it.
func (m *matcher) weights(v, w *graph.Value, x, y *recognize.Constant, turned bool) error {
	v, w = cmp.Or(x.Source, v), cmp.Or(y.Source, w)
	folded, quantized := m.names[keyOfValue(w)]
	same := !turned && x.Values.Stored != nil && y.Values.Stored != nil
	if same {
		var err error
		if same, err = m.equal(x, y); err != nil {
			return err
		}
	}
	if same && !quantized {
		m.result.Same++
		return nil
	}
	match := WeightMatch{Name: v.Path, DType: x.Values.DType.String(), Shape: append([]int64{}, x.Values.Shape...), Form: string(spec.Float)}
	blocks := oneBlock(x.Values.Shape)
	if quantized {
		m.compared[keyOfValue(w)] = true
		match.Form, match.CodeType = folded.Form, folded.CodeType
		blocks = blocksOfWeight(x.Values.Shape, folded.Weight, turned)
	}
	e := &measurement{blocks: blocks}
	var err error
	if turned {
		err = m.measure(e, x, &turnedReader{c: y.Values})
	} else {
		err = m.measure(e, x, y.Values)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", msg.Quote(v.Path), err)
	}
	match.MaxError, match.MSE, match.SQNR, match.Broken = e.all.MaxAbs, e.all.MSE(), max(min(e.all.SQNR(), errstat.Exact), -errstat.Exact), e.broken
	if e.found && quantized {
		match.Worst = &BlockMatch{At: indexOf(x.Values.Shape, e.worstAt), Length: e.worst.N, MaxError: e.worst.MaxAbs, SQNR: max(e.worst.SQNR(), -errstat.Exact)}
	}
	m.result.Weights = append(m.result.Weights, match)
	return nil
}

func indexOf(shape []int64, i int64) []int64 {
	at := make([]int64, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		at[k] = i % max(shape[k], 1)
		i /= max(shape[k], 1)
	}
	return at
}

// cutting sees a tensor as [outer, length, inner], and cuts it along the middle into
// blocks of so many elements.
type cutting struct{ length, inner, block int64 }

func oneBlock(shape []int64) cutting {
	n := max(shapes.Count(shape), 1)
	return cutting{n, 1, n}
}

// mostOpen bounds the blocks that lie side by side, of each of which the errors are
// kept. Tensors that have more are taken for one block.
const mostOpen = 1 << 20

// blocksOfWeight gives the blocks that share a scale. Of a scale for each index of
// an axis between others, it is the part of a block that lies together.
func blocksOfWeight(shape []int64, w *recognize.Weight, turned bool) cutting {
	axis := w.Axis
	if w.Transposed != turned {
		axis = len(shape) - 1 - axis
	}
	if w.PerTensor || axis < 0 || axis >= len(shape) || shapes.Count(shape) == 0 {
		return oneBlock(shape)
	}
	inner := shapes.Count(shape[axis+1:])
	if inner > mostOpen {
		return oneBlock(shape)
	}
	switch {
	case w.Block > 0:
		return cutting{shape[axis], inner, min(w.Block, shape[axis])}
	case axis == len(shape)-1:
		n := shapes.Count(shape[:axis])
		return cutting{n, shape[axis], n}
	}
	return cutting{inner, 1, inner}
}

// measurement is the errors of a weight, and of its worst block.
type measurement struct {
	blocks  cutting
	all     errstat.Stats
	broken  int64
	found   bool // there is a block with errors
	worst   errstat.Stats
	worstAt int64 // its first element
}

// elementReader reads a constant in the order of memory.
type elementReader interface {
	ReadAll(a *lazy.Arena, dst []float32, off int64) error
}

// measure compares what y reads with x.
func (m *matcher) measure(e *measurement, x *recognize.Constant, y elementReader) error {
	const stretch = 1 << 14
	a := &lazy.Arena{}
	p, q := make([]float32, stretch), make([]float32, stretch)
	open := make([]errstat.Stats, e.blocks.inner)
	for off := int64(0); off < x.Values.Size(); {
		rest := e.blocks.length - off/e.blocks.inner%e.blocks.length
		end := off + min(e.blocks.block, rest)*e.blocks.inner
		for at := off; at < end; at += stretch {
			if m.ctx.Err() != nil {
				return context.Cause(m.ctx)
			}
			n := min(stretch, end-at)
			if err := x.Values.ReadAll(a, p[:n], at); err != nil {
				return err
			}
			if err := y.ReadAll(a, q[:n], at); err != nil {
				return err
			}
			e.add(open, p[:n], q[:n], at)
		}
		for i := range open {
			b := open[i]
			e.all.Merge(b)
			if b.SumSqErr > 0 && (!e.found || b.SQNR() < e.worst.SQNR()) {
				e.found, e.worst, e.worstAt = true, b, off+int64(i)
			}
			open[i] = errstat.Stats{}
		}
		off = end
	}
	return nil
}

// add takes in elements w from one place on, and the v that stand for them.
func (e *measurement) add(open []errstat.Stats, w, v []float32, at int64) {
	k := int(at % e.blocks.inner)
	for i := range w {
		b := &open[k]
		if k++; k == len(open) {
			k = 0
		}
		x, err := float64(w[i]), float64(v[i])-float64(w[i])
		if math.IsNaN(err) || math.IsInf(err, 0) {
			if w[i] != v[i] && (w[i] == w[i] || v[i] == v[i]) {
				e.broken++
			}
			continue
		}
		b.N++
		b.MaxAbs = max(b.MaxAbs, math.Abs(err))
		b.SumSqErr += err * err
		b.SumSq += x * x
	}
}

// turnedReader reads the transpose of a matrix, some of its rows at a time.
type turnedReader struct {
	c           *lazy.Tensor
	first, rows int64 // that it holds
	tile, line  []float32
}

func (r *turnedReader) ReadAll(a *lazy.Arena, dst []float32, off int64) error {
	cols, all := r.c.Shape[0], r.c.Shape[1]
	for len(dst) > 0 {
		row := off / cols
		if row < r.first || row >= r.first+r.rows {
			r.first, r.rows = row, min(max(1<<20/cols, 1), 64, all-row)
			r.tile = slices.Grow(r.tile[:0], int(r.rows*cols))[:r.rows*cols]
			r.line = slices.Grow(r.line[:0], int(r.rows))[:r.rows]
			for c := range cols {
				if err := r.c.ReadAll(a, r.line, c*all+row); err != nil {
					return err
				}
				for k, v := range r.line {
					r.tile[int64(k)*cols+c] = v
				}
			}
		}
		n := copy(dst, r.tile[off-r.first*cols:])
		dst, off = dst[n:], off+int64(n)
	}
	return nil
}
