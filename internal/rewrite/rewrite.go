// Package rewrite makes the structure of a converted model: a copy in which codes, scales and
// decoding nodes replace weights, at an opset that supports them.
//
// [Quantize] takes a graph, which does not change, and the decisions of package discover. It
// returns a finished [Model], which the caller owns. The new tensors have no content yet: package
// quantize computes it later.
package rewrite

import (
	"fmt"
	"maps"
	"slices"

	"onnxquant/internal/actpairs"
	"onnxquant/internal/discover"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/target"
	"onnxquant/internal/write"
	"onnxquant/spec"
)

// Model is the structure of a converted model.
type Model struct {
	Copy    *graph.Copy
	Weights []Weight
}

// Weight is a quantized weight: the decision, its form and its new tensors.
type Weight struct {
	*discover.Decision
	Form    *form.Weight
	Tensors form.Tensors
	Growth  form.Footprint // growth of the output against float in bytes; usually negative
}

// Bytes is the size of the new tensors of a weight.
func (w *Weight) Bytes() (n int64) {
	for _, t := range w.Tensors.All() {
		if t != nil {
			n += graph.SizeOf(t)
		}
	}
	return n
}

// Quantize makes the structure in which weights are quantized as decided. Activations are quantized
// as planned; nil means not at all.
func Quantize(x *graph.Graph, decisions []*discover.Decision, activations *actpairs.Plan) (*Model, error) {
	r := &rewriting{copy: x.Copy(), replaced: map[*graph.Value]*replacement{}, dropped: map[*graph.Value]bool{}, decoded: map[string]string{}, bodies: map[int]*form.Builder{}, undeclared: map[string]bool{}, declared: map[string]bool{}}
	operators := form.OperatorsOf(r.copy)
	need, err := r.prepare(operators, decisions, activations)
	if err != nil {
		return nil, err
	}
	gone := func(v *graph.Value) bool { return r.replaced[v] != nil && !r.replaced[v].isFake() }
	if err := write.Inline(r.copy, gone); err != nil {
		return nil, err
	}
	var growing []*onnxpb.FunctionProto // functions that contain weights
	for i, f := range r.copy.Proto.Functions {
		if r.inFunction[i] {
			growing = append(growing, f)
		}
	}
	if err := r.raise(need, growing); err != nil {
		return nil, err
	}
	operators.Show()
	r.undeclare(r.declared)
	r.rewriteGraph(r.copy.Proto.Graph)
	for _, f := range growing {
		r.rewriteFunction(f)
	}
	r.copy.Sort()
	m := &Model{Copy: r.copy}
	for _, w := range r.weights {
		m.Weights = append(m.Weights, Weight{w.decision, w.form, w.tensors, w.growth})
	}
	return m, nil
}

// rewriting is the state of Quantize.
type rewriting struct {
	copy       *graph.Copy
	weights    []*replacement
	replaced   map[*graph.Value]*replacement
	inFunction []bool // by index of the function: it contains a weight

	placed  *form.Builder         // tensors and nodes of activations and biases
	bodies  map[int]*form.Builder // the same of bodies of If, by number of the graph
	dropped map[*graph.Value]bool // initializers that are removed without a replacement

	decoded map[string]string // value that will be decoded from codes → what the codes are made of

	undeclared, declared map[string]bool // names whose declaration is removed; names declared only while the opset is raised
}

// replacement is a weight with its replacement.
type replacement struct {
	decision *discover.Decision
	form     *form.Weight
	decoder  *form.Builder // tensors and nodes, for the styles nbits, dynamic and static
	beside   *form.Builder // of the body that reads the weight, for the style static; nil: where the weight is
	output   string        // name of the decoded weight, for the style qdq
	tensors  form.Tensors
	growth   form.Footprint // see Weight
}

// isFake reports whether the float weight stays and is quantized when the model runs (style qdq).
func (w *replacement) isFake() bool { return w.decision.Choice.Style == spec.QDQ }

// prepare creates the form of each weight. In style nbits operators then read codes, in style qdq
// fake quantized weights. It returns the least opset that all forms support.
func (r *rewriting) prepare(operators *form.Operators, decisions []*discover.Decision, activations *actpairs.Plan) (need int64, err error) {
	r.inFunction = make([]bool, len(r.copy.Proto.Functions))
	var later []*replacement // dynamic weights
	for _, d := range decisions {
		if !d.Quantize {
			continue
		}
		w := &replacement{decision: d}
		if w.form, err = form.New(d.Value.Name, d.DType, d.Shape, *d.Choice); err != nil {
			return 0, fmt.Errorf("tensor %s: %w", msg.Quote(d.Value.Path), err)
		}
		r.weights, r.replaced[d.Value] = append(r.weights, w), w
		need = max(need, w.form.Opset())
		readers := r.readers(d)
		w.growth.Own -= r.bytes(readers)
		switch d.Choice.Style {
		case spec.StyleDynamic:
			w.decoder = form.NewBuilder(r.copy.Names)
			w.tensors = operators.Tables(w.form, d.Reach, w.decoder)
			later = append(later, w)
		case spec.StyleStatic:
			w.decoder = form.NewBuilder(r.copy.Names)
			w.tensors = w.form.BuildStatic(w.decoder, r.copy)
			if body := r.readBody(d.Value, activations); body != nil {
				w.beside = r.builder(body)
			}
		case spec.NBits:
			w.decoder = form.NewBuilder(r.copy.Names)
			w.tensors = operators.ReadCodes(w.form, d.Reach, w.decoder)
		case spec.QDQ:
			w.output = r.copy.Names.Fresh(d.Value.Name + "_DequantizeLinear_Output")
			operators.ReadInstead(d.Value, w.output)
			r.decoded[w.output] = d.Value.Name
		}
		w.growth.Own += r.bytes(readers)
		if d.Value.Body != nil {
			r.inFunction[d.Value.Body.Index] = true
		}
	}
	for _, w := range later {
		operators.Compute(w.form, w.tensors, w.decision.Reach, w.decoder)
	}
	need = max(need, r.place(activations))
	operators.Finish()
	r.declareDropped(activations)
	return need, nil
}

// readers lists the nodes that may change if a weight is quantized: nodes that pass the weight on,
// nodes that read it, and nodes that read their results.
func (r *rewriting) readers(d *discover.Decision) (nodes []*onnxpb.NodeProto) {
	if s := d.Choice.Style; s != spec.NBits && s != spec.QDQ {
		return nil
	}
	add := func(n *onnxpb.NodeProto) {
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	for _, l := range slices.Concat(d.Reach.Leaves, d.Reach.Unread) {
		for _, n := range l.Via {
			add(n)
		}
		add(l.Node)
		if v := r.copy.Original.Made(l.Node); v != nil {
			for _, u := range v.Uses {
				add(u.Node)
			}
		}
	}
	return nodes
}

// bytes is the size in the copy of some nodes of the original and of the nodes added behind them.
func (r *rewriting) bytes(nodes []*onnxpb.NodeProto) (sum int64) {
	for _, n := range nodes {
		made := r.copy.Node(n)
		if r.copy.Dropped(made) {
			continue
		}
		for _, n := range slices.Concat(r.copy.Behind(made), []*onnxpb.NodeProto{made}) {
			sum += form.NodeBytes(n)
		}
	}
	return sum
}

// Raise raises the opset of a model and of the given functions to need. It raises the IR version if
// that opset needs it.
func Raise(c *graph.Copy, need int64, functions ...*onnxpb.FunctionProto) error {
	return (&rewriting{copy: c}).raise(need, functions)
}

// raise is Raise before the nodes that decode weights and activations are there.
func (r *rewriting) raise(need int64, functions []*onnxpb.FunctionProto) error {
	if need == 0 {
		return nil
	}
	if err := opset.RaiseWithout(r.copy.Proto, r.decoded, need, r.copy.Names.Fresh, functions...); err != nil {
		return err
	}
	opset.RaiseIR(r.copy.Proto, opset.IRFor(graph.Opset(r.copy.Proto)))
	return nil
}

// Loss is an operator that a runtime runs at the opset of the input but not at the opset of the
// output.
type Loss struct {
	Runtime *target.Engine
	Op      string
	Opset   int64 // the first at which it does not run
}

func (l Loss) String() string {
	return fmt.Sprintf("%s has no kernel for %s from opset %d on", l.Runtime.Name, l.Op, l.Opset)
}

// Losses lists, by name, the operators that a runtime no longer runs after the opset was raised.
func Losses(c *graph.Copy, e *target.Engine) []Loss {
	from, to, found := c.Original.Opset, graph.Opset(c.Proto), map[string]int64{}
	graph.WalkNodes(c.Proto, func(n *onnxpb.NodeProto) {
		if op := n.GetOpType(); graph.IsStandard(n.GetDomain()) && e.Loses(op, from, to) != 0 {
			found[op] = e.Loses(op, from, to)
		}
	})
	var all []Loss
	for _, op := range slices.Sorted(maps.Keys(found)) {
		all = append(all, Loss{e, op, found[op]})
	}
	return all
}

// rewriteGraph replaces weights in a graph and its subgraphs by the tensors and nodes that decode
// them.
func (r *rewriting) rewriteGraph(g *onnxpb.GraphProto) {
	b := form.NewBuilder(r.copy.Names)
	gone := map[string]bool{}
	for _, t := range g.Initializer {
		v := r.copy.Value(t)
		if v != nil && r.dropped[v] {
			gone[v.Name] = true
			continue
		}
		w := r.replaced[v]
		if w == nil || w.isFake() {
			b.Tensors = append(b.Tensors, t)
		}
		if w == nil {
			continue
		}
		w.build(b)
		if !w.isFake() {
			w.growth.Own -= form.TensorBytes(t)
		}
		gone[w.form.Name] = true // it may also be an input
		if codes := w.tensors.Codes; codes != nil {
			codes.DocString, codes.MetadataProps = t.DocString, t.MetadataProps
		}
	}
	if g == r.copy.Proto.Graph {
		b.Tensors, b.Nodes = append(b.Tensors, r.placed.Tensors...), append(b.Nodes, r.placed.Nodes...)
	} else if body := r.bodyOf(g); body != nil {
		b.Tensors, b.Nodes = append(b.Tensors, body.Tensors...), append(b.Nodes, body.Nodes...)
	}
	nodes := r.rewriteNodes(b, g.Node)
	g.Initializer = b.Tensors
	g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return gone[in.GetName()] })
	g.Node = append(b.Nodes, nodes...)
}

// bodyOf returns what place adds to a graph of the copy inside of a node, or nil.
func (r *rewriting) bodyOf(g *onnxpb.GraphProto) *form.Builder {
	for n, b := range r.bodies {
		if r.copy.Graphs()[n] == g {
			return b
		}
	}
	return nil
}

// rewriteFunction is rewriteGraph for a function, which has Constant nodes but no initializers.
func (r *rewriting) rewriteFunction(f *onnxpb.FunctionProto) {
	b := form.NewBuilder(r.copy.Names)
	nodes := r.rewriteNodes(b, f.Node)
	f.Node = slices.Concat(b.ConstantNodes(), b.Nodes, nodes)
}

// rewriteNodes replaces weights in Constant nodes and adds their tensors and nodes to b. It returns
// the remaining nodes.
func (r *rewriting) rewriteNodes(b *form.Builder, nodes []*onnxpb.NodeProto) (kept []*onnxpb.NodeProto) {
	for _, n := range nodes {
		w := r.replacementOf(graph.ConstantTensor(n))
		if w != nil {
			w.build(b)
			if w.tensors.Codes != nil {
				w.growth.Own -= form.NodeBytes(n)
				continue
			}
		}
		for _, a := range n.Attribute {
			for _, sub := range graph.Subgraphs(a) {
				r.rewriteGraph(sub)
			}
		}
		kept = append(kept, n)
	}
	return kept
}

// replacementOf returns the replacement for the content of a copy's tensor, or nil if the tensor
// stays.
func (r *rewriting) replacementOf(t *onnxpb.TensorProto) *replacement {
	if t == nil {
		return nil
	}
	return r.replaced[r.copy.Value(t)]
}

// build adds the tensors and nodes that decode the weight.
func (w *replacement) build(b *form.Builder) {
	before := b.Mark()
	switch w.decision.Choice.Style {
	case spec.NBits, spec.StyleDynamic, spec.StyleStatic:
		b.Tensors = append(b.Tensors, w.decoder.Tensors...)
		to := b
		if w.beside != nil {
			to = w.beside
		}
		to.Nodes = append(to.Nodes, w.decoder.Nodes...)
	case spec.QDQ:
		w.tensors = w.form.BuildFake(b, w.output)
	default:
		w.tensors = w.form.Build(b)
	}
	added := b.Since(before)
	w.growth.Own, w.growth.Shared = w.growth.Own+added.Own, added.Shared
}
