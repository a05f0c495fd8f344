package compare

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"onnxquant/formats/dtype"
	"onnxquant/internal/access"
	"onnxquant/internal/balance"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/intops"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/onnxq"
	"onnxquant/onnxq/provenance"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/restyle"
)

// Match is the result of MatchWeights: whether two float models are equal except for their
// weights, and the errors of the weights.
type Match struct {
	// Problems are differences in what the models compute, apart from weights: an input or
	// output that is gone or has another type, or a node that is gone, new or different.
	Problems []string `json:"problems"`

	// Notes are differences that do not matter: names, metadata, or a higher opset.
	Notes []string `json:"notes"`

	Nodes   int           `json:"nodes"`   // of the first model, with subgraphs
	Weights []WeightMatch `json:"weights"` // float constants that differ or were quantized, if anything reads or returns them
	Same    int           `json:"same"`    // float constants that are equal
	Rounded int           `json:"rounded"` // those of Same that the first model has in float32, and the second in half

	// Activations counts the tensors with a QuantizeLinear and a DequantizeLinear around them in
	// the second model alone, by the type of their codes.
	Activations map[string]int `json:"activations,omitempty"`

	Half string `json:"half,omitempty"` // float16 or bfloat16, if float32 became that
}

// WeightMatch compares a weight w of the first model with weight v of the second.
type WeightMatch struct {
	Name  string  `json:"name"` // in the first model, with the path of its subgraph
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`

	Form     string `json:"form"` // form of v before decoding, as in recognize.Weight, or "float"
	CodeType string `json:"code_type,omitempty"`
	Block    int64  `json:"block,omitempty"` // elements that share a scale, spec.PerChannel or spec.PerTensor
	Bytes    int64  `json:"bytes"`           // of w
	OutBytes int64  `json:"out_bytes"`       // codes, scales and zero points; Bytes if not quantized

	MaxError float64 `json:"max_error"` // max |w - v|
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"`          // 10·log10(mean w² / MSE); 999 if exact
	Misfit   float64 `json:"misfit_db"`        // how much higher SQNR would be with the best scale, and zero point or min, for each block; 0 if scales are powers of two
	Broken   int64   `json:"broken,omitempty"` // elements where w or v is NaN or infinite and they differ; left out of the errors

	Worst  *BlockMatch `json:"worst_block,omitempty"` // block with the lowest SQNR, if there are errors
	Detail *Detail     `json:"detail,omitempty"`      // set by MatchDecoded

	// WorstLarge is the same among the blocks, or superblocks, whose mean square is at least 1 %
	// of that of the weight.
	WorstLarge *BlockMatch `json:"worst_large_block,omitempty"`
}

// BlockMatch is a block of elements that share a scale.
type BlockMatch struct {
	Shape    []int64 `json:"shape"`     // of the codes; the weight's may be a view of it
	At       []int64 `json:"at"`        // index of its first element, in Shape
	Axis     int     `json:"axis"`      // of Shape, as in recognize.Weight; -1: one scale for the whole tensor
	Length   int64   `json:"length"`    // elements
	MaxError float64 `json:"max_error"` // of its elements, as MSE and SQNR in WeightMatch
	MSE      float64 `json:"mse"`
	SQNR     float64 `json:"sqnr_db"`
}

// MatchWeights compares a float model a with b, the same model after quantizing and
// restyle.Dequantize. folded is what Dequantize reported, or nil. Nodes are
// matched by their outputs. If b has a higher opset, it is compared with a raised to this
// opset as [onnxq.Convert] raises it. Other models give problems, not an error.
//
// Progress, if not nil, is called with the bytes of a that were compared, and their total.
func MatchWeights(ctx context.Context, a, b *onnxq.Model, folded *restyle.Report, progress func(done, total int64)) (*Match, error) {
	return matchWeights(ctx, Decoded{Model: a}, Decoded{Model: b, Folded: folded}, false, progress)
}

func matchWeights(ctx context.Context, a, b Decoded, detail bool, progress func(done, total int64)) (*Match, error) {
	if b.Folded == nil {
		b.Folded = &restyle.Report{}
	}
	first, err := match(ctx, a, b, detail, nil, progress)
	if err != nil || len(first.Problems) == 0 || access.Graph(a.Model).Opset == access.Graph(b.Model).Opset {
		return first, err
	}
	opaque := coded(access.Graph(b.Model), b.Folded.Weights)
	if len(opaque) == 0 {
		return first, nil
	}
	second, err := match(ctx, a, b, detail, opaque, progress)
	if err != nil || len(second.Problems) > 0 {
		return first, err
	}
	return second, nil
}

// match compares with a, raised with the nodes of opaque outputs hidden.
func match(ctx context.Context, from, to Decoded, detail bool, opaque map[string]bool, progress func(done, total int64)) (*Match, error) {
	a, b, folded := from.Model, to.Model, to.Folded
	m := &matcher{
		ctx: ctx, progress: progress, total: access.Graph(a).File.Size(), b: recognize.New(access.Graph(b)), ranges: folded.Ranges, names: map[string]*restyle.Weight{}, seen: map[pairing]bool{},
		stored: map[string]bool{}, compared: map[string]bool{}, claimed: map[*graph.Value]*graph.Value{}, twin: map[*graph.Value]*graph.Value{},
		steady: map[*graph.Value]bool{}, coded: map[coding]bool{}, result: &Match{Problems: []string{}, Notes: []string{}, Weights: []WeightMatch{}},
	}
	x := access.Graph(a)
	if mayBeBalanced(provenance.Of(access.Graph(b).File.Proto)) {
		scaled, groups, err := balance.Like(x, access.Graph(b))
		if err != nil {
			return nil, err
		}
		x = scaled
		m.balanced(groups)
	}
	switch h, err := half.Like(x, access.Graph(b)); {
	case err != nil:
		m.problem("float32 -> half: %v", err)
	case h != nil:
		m.note("%s", halfNote(h))
		m.half, m.rounds, m.result.Half = h.To, h.Rounds, strings.ToLower(h.To.String())
		x = h.Graph
	}
	if up, err := raised(x, access.Graph(b).File.Proto, opaque); err != nil {
		m.problem("opset %d -> %d: %v", access.Graph(a).Opset, access.Graph(b).Opset, err)
	} else {
		x = up
	}
	m.a = recognize.New(x)
	m.gone, m.partner = make([]bool, x.Nodes()+1), make([]*onnxpb.NodeProto, x.Nodes()+1)
	m.fresh = make([]bool, access.Graph(b).Nodes()+1)
	m.detail, m.readable, m.was = detail, to.readable(), map[string]*recognize.Weight{}
	for w, same := range from.readable() {
		m.was[w.Became] = same
	}
	graph.WalkNodes(access.Graph(a).File.Proto, func(*onnxpb.NodeProto) { m.result.Nodes++ })
	for _, v := range x.Values {
		m.stored[keyOfValue(v)] = true
	}
	for i, w := range folded.Weights {
		m.names[w.Became] = &folded.Weights[i]
		if w.Reason != "" {
			m.note("%s stays %s, which cannot be decoded: %s", msg.Quote(w.Name), w.Form, w.Reason)
		}
	}
	for _, f := range []*recognize.Recognizer{m.a, m.b} {
		f.Functions, f.Rearrange = true, true
	}
	m.versions(access.Graph(a).File.Proto, access.Graph(b).File.Proto)
	m.defaults(access.Graph(a), access.Graph(b).File.Proto)
	if err := m.models(); err != nil {
		return nil, err
	}
	read := map[string]bool{}
	for _, v := range access.Graph(b).Values {
		read[keyOfValue(v)] = len(v.Uses) > 0 || v.Output || len(v.Returned()) > 0
	}
	for _, w := range folded.Weights {
		switch {
		case w.Reason != "" || m.compared[w.Became]:
		case read[w.Became]:
			m.problem("what %s stands for is not found", msg.Quote(w.Name))
		default:
			m.note("nothing reads %s", msg.Quote(w.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.ranges)) {
		if step := m.ranges[name].Step; !(step > 0 && step <= math.MaxFloat64) {
			m.problem("the codes of %s have the scale %g", msg.Quote(name), step)
		}
	}
	m.countActivations()
	return m.result, nil
}

// halfNote tells that float32 became float16 or bfloat16.
func halfNote(h *half.Model) string {
	return fmt.Sprintf("float32 -> %s: %d Casts, %d nodes stay in float32", strings.ToLower(h.To.String()), h.Casts, len(h.Kept))
}

// matcher is the state of MatchWeights.
type matcher struct {
	ctx   context.Context
	a, b  *recognize.Recognizer      // a at the opset of b
	names map[string]*restyle.Weight // by name of the float tensor
	seen  map[pairing]bool           // compared constants

	stored   map[string]bool               // by keyOfValue: whether a stores it
	compared map[string]bool               // by keyOfValue: whether a weight of b was compared
	claimed  map[*graph.Value]*graph.Value // weight of b → the weight of a that it was compared with

	factored map[string]factored // by keyOfValue: weights of a that have factors in b

	half   dtype.DType             // what float32 became in b, or 0
	rounds func(path string) bool  // whether a stored value of a became half
	ranges map[string]intops.Range // of values of b that were codes before

	detail   bool                                  // set WeightMatch.Detail
	readable map[*restyle.Weight]*recognize.Weight // weight of b that was folded → the same one, which can be read
	was      map[string]*recognize.Weight          // by keyOfValue: weight of a that was folded, which can be read

	gone, fresh []bool                        // by number of nodes of a, and of b: those without a partner
	partner     []*onnxpb.NodeProto           // by number of a node of a: the same node of b
	twin        map[*graph.Value]*graph.Value // input of a graph of a → the same one of b
	steady      map[*graph.Value]bool         // whether a value depends on constants alone
	coded       map[coding]bool               // activations of b that are quantized
	depth       int                           // of the recursion

	progress          func(done, total int64) // may be nil
	done, told, total int64                   // bytes of a: compared, reported, all
	result            *Match
}

// pairing is a pair of constants; transposed: the first is the transpose of the second.
type pairing struct {
	v, w       *graph.Value
	transposed bool
}

// deepestMatch bounds the recursion along a chain of nodes, against hostile models.
const deepestMatch = 1 << 16

// count counts bytes of a that were compared.
func (m *matcher) count(bytes int64) {
	const step = 1 << 20
	if m.done += bytes; m.progress != nil && m.done-m.told >= step {
		m.told = m.done
		m.progress(min(m.done, m.total), m.total)
	}
}

func (m *matcher) problem(format string, args ...any) {
	m.result.Problems = append(m.result.Problems, fmt.Sprintf(format, args...))
}

func (m *matcher) note(format string, args ...any) {
	m.result.Notes = append(m.result.Notes, fmt.Sprintf(format, args...))
}

// models compares the models as a whole.
func (m *matcher) models() error {
	x, y := m.a.Graph.File.Proto, m.b.Graph.File.Proto
	d := &differ{ctx: m.ctx, a: m.a.Graph.File, b: m.b.Graph.File, result: &Difference{}}
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
	m.ends("", "input", graph.RuntimeInputs(x.Graph), graph.RuntimeInputs(y.Graph), m.problem)
	m.ends("", "output", x.Graph.Output, y.Graph.Output, m.problem)
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
			if err := m.value(place{output: v.Name}, v, w, m.problem); err != nil {
				return err
			}
		}
	}
	return m.rest("", x.Graph.Node, y.Graph.Node)
}

// defaults reports the inputs with a default, an initializer, that are gone. Converting keeps
// those that are offered to callers; others are inputs by an old rule or habit.
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
	m.sameInputs(x.Node, y.Node, x.Input, x.Input)
	if err := m.bodies(where, x.Node, y.Node); err != nil {
		return err
	}
	for _, name := range x.Output {
		if v, w := madeIn(m.a.Graph, x, name), madeIn(m.b.Graph, y, name); v != nil && w != nil {
			if err := m.value(place{where: where, output: name}, v, w, m.problem); err != nil {
				return err
			}
		}
	}
	return m.rest(where, x.Node, y.Node)
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
func (m *matcher) subgraphs(where string, x, y *onnxpb.GraphProto, report func(string, ...any)) error {
	for _, end := range []struct {
		kind string
		x, y []*onnxpb.ValueInfoProto
	}{{"input", graph.RuntimeInputs(x), graph.RuntimeInputs(y)}, {"output", x.Output, y.Output}} {
		if len(end.x) != len(end.y) {
			report("%s%d %ss, were %d", where, len(end.y), end.kind, len(end.x))
			return nil
		}
		for i, v := range end.x {
			m.types(where, end.kind, v, end.y[i], report)
		}
	}
	m.sameInputs(x.Node, y.Node, namesOf(graph.RuntimeInputs(x)), namesOf(graph.RuntimeInputs(y)))
	if err := m.bodies(where, x.Node, y.Node); err != nil {
		return err
	}
	for i, v := range m.a.Graph.Returned[x] {
		if err := m.value(place{where: where, output: v.Name}, v, m.b.Graph.Returned[y][i], report); err != nil {
			return err
		}
	}
	return m.rest(where, x.Node, y.Node)
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
		makers[keyOf(n)] = n
		m.fresh[m.b.Graph.Number(n)] = true
	}
	pairs := make([][2]*onnxpb.NodeProto, 0, len(x))
	for _, n := range x {
		other := makers[keyOf(n)]
		if other == nil {
			m.gone[m.a.Graph.Number(n)] = true
			continue
		}
		if _, coded := m.ranges[keyOf(other)]; coded && (clips(other) || !sameOperator(n, other)) || m.stands(n, other) {
			m.gone[m.a.Graph.Number(n)] = true // see unpaired and unclipped
			continue
		}
		m.fresh[m.b.Graph.Number(other)] = false
		if g := m.gemmOf(n, other); g != nil {
			for _, part := range g.nodes() {
				m.fresh[m.b.Graph.Number(part)] = false
			}
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

// rest reports the nodes without a partner.
func (m *matcher) rest(where string, x, y []*onnxpb.NodeProto) error {
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
		if other := is[i.GetName()]; other != nil {
			m.types(where, kind, i, other, report)
		} else {
			report("%s%s %s is gone", where, kind, msg.Quote(i.GetName()))
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

// types compares the types of two inputs or outputs.
func (m *matcher) types(where, kind string, x, y *onnxpb.ValueInfoProto, report func(string, ...any)) {
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
