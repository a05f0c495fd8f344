package compare

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/onnxq/diff"
)

// models compares the models as a whole.
func (m *matcher) models() error {
	x, y := m.a.Graph.File.Proto, m.b.Graph.File.Proto
	for _, part := range []struct {
		x, y   proto.Message
		fields []protoreflect.Name
		report func(string, ...any)
	}{
		{x, y, []protoreflect.Name{"training_info"}, m.problem},
		{x.Graph, y.Graph, []protoreflect.Name{"sparse_initializer"}, m.problem},
		{x, y, []protoreflect.Name{"producer_name", "producer_version", "domain", "model_version", "doc_string", "metadata_props"}, m.note},
		{x.Graph, y.Graph, []protoreflect.Name{"name", "doc_string", "metadata_props"}, m.note},
	} {
		changes, err := m.changes("", part.x, part.y, part.fields...)
		if err != nil {
			return err
		}
		for _, c := range changes {
			part.report("%s", c)
		}
	}
	if err := m.functions(x, y); err != nil {
		return err
	}
	m.ends("input", graph.RuntimeInputs(x.Graph), graph.RuntimeInputs(y.Graph))
	m.ends("output", x.Graph.Output, y.Graph.Output)
	m.sameInputs(x.Graph.Node, y.Graph.Node, namesOf(x.Graph.Input), namesOf(x.Graph.Input))
	if err := m.bodies("", x.Graph.Node, y.Graph.Node); err != nil {
		return err
	}
	named := map[string]*graph.Value{}
	for _, w := range m.b.Graph.Returned[y.Graph] {
		named[w.Name] = w
	}
	for _, v := range m.a.Graph.Returned[x.Graph] {
		if w := named[v.Name]; w != nil {
			if err := m.value(place{output: v.Name}, v, w); err != nil {
				return err
			}
		}
	}
	return m.unpartnered("", x.Graph.Node, y.Graph.Node)
}

// changes lists what differs between two messages, or between fields of these.
func (m *matcher) changes(where string, x, y proto.Message, fields ...protoreflect.Name) ([]diff.Change, error) {
	return diff.Messages(m.ctx, where, m.a.Graph.File, m.b.Graph.File, x, y, fields...)
}

// defaults reports missing inputs that have a default (an initializer). A conversion keeps inputs that
// callers may set. It removes initializers that are inputs only because old IR versions demand it.
func (m *matcher) defaults(x *graph.Graph, y *onnxpb.ModelProto) {
	if x.File.Proto.GetIrVersion() < opset.FreeInitializers {
		return
	}
	left := namesOf(y.Graph.Input)
	slices.Sort(left)
	var gone []string
	for _, v := range x.Values {
		_, there := slices.BinarySearch(left, v.Name)
		switch {
		case !v.Input || v.Graph != x.File.Proto.Graph || there:
		case v.MustBeInput:
			gone = append(gone, msg.Quote(v.Name))
		default:
			m.problem("input %s is gone: callers could replace its default", msg.Quote(v.Name))
		}
	}
	if len(gone) > 0 {
		m.note("inputs with a default are gone, callers cannot replace them: %s", msg.List(gone))
	}
}

// functions compares the functions of the models.
func (m *matcher) functions(x, y *onnxpb.ModelProto) error {
	others := map[string]*onnxpb.FunctionProto{}
	for _, f := range y.Functions {
		others[keyOfFunction(f)] = f
	}
	for _, f := range x.Functions {
		key := keyOfFunction(f)
		where := functionText(f)
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
	for _, key := range slices.Sorted(maps.Keys(others)) {
		m.problem("%sit is new", functionText(others[key]))
	}
	return nil
}

func (m *matcher) function(where string, x, y *onnxpb.FunctionProto) error {
	changes, err := m.changes("", x, y, "input", "output", "attribute", "attribute_proto")
	if err != nil {
		return err
	}
	for _, c := range changes {
		m.problem("%s%s", where, c)
	}
	m.sameInputs(x.Node, y.Node, x.Input, x.Input)
	if err := m.bodies(where, x.Node, y.Node); err != nil {
		return err
	}
	for _, name := range x.Output {
		if v, w := madeIn(m.a.Graph, x, name), madeIn(m.b.Graph, y, name); v != nil && w != nil {
			if err := m.value(place{where: where, output: name}, v, w); err != nil {
				return err
			}
		}
	}
	return m.unpartnered(where, x.Node, y.Node)
}

func functionText(f *onnxpb.FunctionProto) string {
	return fmt.Sprintf("function %s: ", msg.Quote(f.GetName()))
}

// madeIn finds an output of a node in a function.
func madeIn(x *graph.Graph, f *onnxpb.FunctionProto, name string) *graph.Value {
	for _, n := range f.Node {
		for _, v := range x.Outputs(n) {
			if v != nil && v.Name == name {
				return v
			}
		}
	}
	return nil
}

// subgraphs compares graphs in attributes. Their inputs and outputs are matched by position.
func (m *matcher) subgraphs(where string, x, y *onnxpb.GraphProto) error {
	for _, end := range []struct {
		kind string
		x, y []*onnxpb.ValueInfoProto
	}{{"input", graph.RuntimeInputs(x), graph.RuntimeInputs(y)}, {"output", x.Output, y.Output}} {
		if len(end.x) != len(end.y) {
			m.problem("%s%d %ss, were %d", where, len(end.y), end.kind, len(end.x))
			return nil
		}
		for i, v := range end.x {
			m.types(where, end.kind, v, end.y[i])
		}
	}
	m.sameInputs(x.Node, y.Node, namesOf(graph.RuntimeInputs(x)), namesOf(graph.RuntimeInputs(y)))
	if err := m.bodies(where, x.Node, y.Node); err != nil {
		return err
	}
	for i, v := range m.a.Graph.Returned[x] {
		if err := m.value(place{where: where, output: v.Name}, v, m.b.Graph.Returned[y][i]); err != nil {
			return err
		}
	}
	return m.unpartnered(where, x.Node, y.Node)
}

// sameInputs records that the inputs of a graph, or of a function, are the same.
func (m *matcher) sameInputs(x, y []*onnxpb.NodeProto, names, others []string) {
	if len(x) == 0 || len(y) == 0 {
		return // nothing reads them
	}
	a, b := m.a.Graph.Home(x[0]).Values, m.b.Graph.Home(y[0]).Values
	for i, name := range names {
		if v, w := a[name], b[others[i]]; v != nil && w != nil {
			m.twin[v] = w
		}
	}
}

func namesOf(infos []*onnxpb.ValueInfoProto) []string {
	var names []string
	for _, i := range infos {
		names = append(names, i.GetName())
	}
	return names
}

// bodies compares the nodes of a graph or a function, matched by their first outputs.
func (m *matcher) bodies(where string, x, y []*onnxpb.NodeProto) error {
	makers := make(map[string]*onnxpb.NodeProto, len(y))
	for _, n := range y {
		makers[graph.FirstOutput(n)] = n
		m.fresh[m.b.Graph.Number(n)] = true
	}
	pairs := make([][2]*onnxpb.NodeProto, 0, len(x))
	for _, n := range x {
		other := makers[graph.FirstOutput(n)]
		if other == nil {
			m.gone[m.a.Graph.Number(n)] = true
			continue
		}
		if _, coded := m.ranges[graph.FirstOutput(other)]; coded && (clips(other) || !sameOperator(n, other)) || m.tookName(n, other) || graph.IsOperator(n, "Identity") && !sameOperator(n, other) {
			m.gone[m.a.Graph.Number(n)] = true // see unpaired, unclipped and unnamed
			continue
		}
		m.fresh[m.b.Graph.Number(other)] = false
		if g := m.gemmOf(n, other); g != nil {
			for _, part := range g.nodes() {
				m.fresh[m.b.Graph.Number(part)] = false
			}
		}
		if c := m.convOf(n, other); c != nil {
			m.fresh[m.b.Graph.Number(c.product)] = false
		}
		m.partner[m.a.Graph.Number(n)] = other
		pairs = append(pairs, [2]*onnxpb.NodeProto{n, other})
	}
	for _, p := range pairs {
		if err := m.nodes(where, p[0], p[1]); err != nil {
			return err
		}
	}
	return nil
}

// unpartnered reports the nodes without a partner.
func (m *matcher) unpartnered(where string, x, y []*onnxpb.NodeProto) error {
	for _, n := range x {
		if m.gone[m.a.Graph.Number(n)] && !m.isSteady(m.a.Graph.Made(n)) {
			m.problem("%s%s is gone", where, graph.Describe(n))
		}
	}
	m.unread(y)
	for _, n := range y {
		if m.fresh[m.b.Graph.Number(n)] && !m.isSteady(m.b.Graph.Made(n)) {
			m.problem("%s%s is new", where, graph.Describe(n))
		}
	}
	return nil
}

// ends compares the inputs or outputs of the models.
func (m *matcher) ends(kind string, x, y []*onnxpb.ValueInfoProto) {
	types := func(infos []*onnxpb.ValueInfoProto) map[string]*onnxpb.ValueInfoProto {
		byName := map[string]*onnxpb.ValueInfoProto{}
		for _, i := range infos {
			byName[i.GetName()] = i
		}
		return byName
	}
	was, is := types(x), types(y)
	for _, i := range x {
		if other := is[i.GetName()]; other != nil {
			m.types("", kind, i, other)
		} else {
			m.problem("%s %s is gone", kind, msg.Quote(i.GetName()))
		}
	}
	for _, i := range y {
		if was[i.GetName()] == nil {
			m.problem("%s %s is new", kind, msg.Quote(i.GetName()))
		}
	}
	name := func(i, j *onnxpb.ValueInfoProto) bool { return i.GetName() == j.GetName() }
	if len(was) == len(is) && !slices.EqualFunc(x, y, name) {
		m.problem("%ss are in another order", kind)
	}
}

// types compares the types of two inputs or outputs.
func (m *matcher) types(where, kind string, x, y *onnxpb.ValueInfoProto) {
	report := m.problem
	switch {
	case proto.Equal(x.GetType(), y.GetType()):
		return
	case sameType(x.GetType(), y.GetType()):
		report = m.note
	}
	report("%s%s %s: %s -> %s", where, kind, msg.Quote(x.GetName()), graph.TypeText(x.GetType()), graph.TypeText(y.GetType()))
}

// sameType reports whether two types are the same apart from dimensions that are not fixed.
func sameType(x, y *onnxpb.TypeProto) bool {
	a, b := x.GetTensorType(), y.GetTensorType()
	if a == nil || b == nil {
		return proto.Equal(x, y)
	}
	open := func(d *onnxpb.TensorShapeProto_Dimension) bool {
		v, fixed := d.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue)
		return !fixed || v.DimValue < 0 // some writers use -1
	}
	return a.GetElemType() == b.GetElemType() && (a.Shape == nil || b.Shape == nil ||
		slices.EqualFunc(a.Shape.Dim, b.Shape.Dim, func(d, e *onnxpb.TensorShapeProto_Dimension) bool {
			return open(d) || open(e) || d.GetDimValue() == e.GetDimValue()
		}))
}
