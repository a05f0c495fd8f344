package compare

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/onnxq"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/restyle"
)

// Match is the result of MatchWeights: whether two float models are equal except for their
// weights, and the errors of the weights.
type Match struct {
	// Problems are differences in what the models compute, apart from weights: an input or
	// output that is gone or has another type, or a node that is gone, new or different.
	Problems []string `json:"problems"`

	// Notes are differences that do not matter: names, metadata, or a higher opset with the
	// nodes that had to change for it.
	Notes []string `json:"notes"`

	Nodes   int           `json:"nodes"`   // of the first model, with subgraphs
	Weights []WeightMatch `json:"weights"` // float constants that differ or were quantized, if anything reads or returns them
	Same    int           `json:"same"`    // float constants that are equal
}

// WeightMatch compares a weight w of the first model with weight v of the second.
type WeightMatch struct {
	Name  string  `json:"name"` // in the first model, with the path of its subgraph
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`

	Form     string `json:"form"` // form of v before decoding, as in recognize.Weight, or "float"
	CodeType string `json:"code_type,omitempty"`

	MaxError float64 `json:"max_error"` // max |w - v|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"`          // 10·log10(mean w² / MSE); 999 if exact
	Broken   int64   `json:"broken,omitempty"` // elements where w or v is NaN or infinite and they differ; left out of the errors

	Worst *BlockMatch `json:"worst_block,omitempty"` // block with the lowest SQNR, if there are errors
}

// BlockMatch is a block of elements that share a scale.
type BlockMatch struct {
	At       []int64 `json:"at"` // index of its first element, in Shape
	Length   int64   `json:"length"`
	MaxError float64 `json:"max_error"`
	SQNR     float64 `json:"sqnr_db"`
}

// MatchWeights compares a float model a with b, the same model after quantizing and
// restyle.Dequantize. folded is the list of weights that Dequantize reported. Nodes are
// matched by their outputs. Other models give problems, not an error.
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

// matcher is the state of MatchWeights.
type matcher struct {
	ctx   context.Context
	a, b  *recognize.Recognizer
	names map[string]restyle.Weight // by name of the float tensor
	seen  map[[2]*graph.Value]bool  // compared pairs

	compared map[string]bool // by key of names: it was compared

	gone, fresh map[*onnxpb.NodeProto]bool              // nodes of a and of b whose output the other model does not have
	partner     map[*onnxpb.NodeProto]*onnxpb.NodeProto // pairs of these that are nevertheless the same node
	steady      map[*graph.Value]bool                   // whether a value depends on constants alone
	raised      map[string]bool                         // by operator: whether its version changed; nil if the opset is the same
	depth       int                                     // of the recursion
	result      *Match
}

// deepestMatch bounds the recursion along a chain of nodes, against hostile models.
const deepestMatch = 1 << 16

func (m *matcher) problem(format string, args ...any) {
	m.result.Problems = append(m.result.Problems, fmt.Sprintf(format, args...))
}

func (m *matcher) note(format string, args ...any) {
	m.result.Notes = append(m.result.Notes, fmt.Sprintf(format, args...))
}

// models compares the models as a whole.
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

// madeIn finds an output of a node in a function.
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

// graphs compares two graphs. Differences in their inputs and outputs go to report.
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

// results compares the outputs of graphs that depend on constants alone. Other outputs are
// compared by their nodes.
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

// sameType reports whether two types are the same apart from dimensions that are not fixed.
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
