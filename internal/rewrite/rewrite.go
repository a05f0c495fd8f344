// Package rewrite makes the structure of a converted model: a copy in which codes, scales
// and the nodes that decode them stand in the place of the weights, at an opset that has
// them.
//
// It gets the decisions of package discover and returns a finished [Model]. Contents are
// made later, by others.
package rewrite

import (
	"fmt"
	"slices"

	"onnxquant/internal/discover"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/write"
	"onnxquant/onnxq/spec"
)

// Model is the structure of a converted model.
type Model struct {
	Copy    *graph.Copy
	Weights []Weight
}

// Weight is a weight that is quantized: why, how, and into which tensors.
type Weight struct {
	*discover.Decision
	Form    *form.Weight
	Tensors form.Tensors
}

// Bytes is the size of the tensors that a weight becomes.
func (w *Weight) Bytes() (n int64) {
	for _, t := range w.Tensors.All() {
		if t != nil {
			n += graph.SizeOf(t)
		}
	}
	return n
}

// Quantize makes the structure in which weights are quantized as was decided.
func Quantize(x *graph.Graph, decisions []*discover.Decision) (*Model, error) {
	r := &rewriting{copy: x.Copy(), replaced: map[*graph.Value]*replacement{}}
	need, err := r.prepare(decisions)
	if err != nil {
		return nil, err
	}
	gone := func(v *graph.Value) bool { return r.replaced[v] != nil && !r.replaced[v].fake() }
	if err := write.Inline(r.copy, gone); err != nil {
		return nil, err
	}
	var growing []*onnxpb.FunctionProto // the functions that hold weights
	for i, f := range r.copy.Proto.Functions {
		if r.inFunction[i] {
			growing = append(growing, f)
		}
	}
	if err := Raise(r.copy, need, growing...); err != nil {
		return nil, err
	}
	r.graph(r.copy.Proto.Graph, r.copy.Domain())
	for _, f := range growing {
		r.function(f)
	}
	r.copy.Sort()
	m := &Model{Copy: r.copy}
	for _, w := range r.weights {
		m.Weights = append(m.Weights, Weight{w.decision, w.form, w.tensors})
	}
	return m, nil
}

// rewriting is a model in the making.
type rewriting struct {
	copy       *graph.Copy
	weights    []*replacement
	replaced   map[*graph.Value]*replacement
	inFunction []bool // by functions: whether one of the weights lies in it
}

// replacement is a weight and what takes its place.
type replacement struct {
	decision *discover.Decision
	form     *form.Weight
	decoder  *form.Builder // what was made already, in the style nbits
	output   string        // what it decodes to, in the style qdq
	tensors  form.Tensors
}

func (w *replacement) fake() bool { return w.decision.Choice.Style == spec.QDQ }

// prepare finds the form of each weight, and makes the operators that read codes or fake
// quantized weights do so. It returns the least opset that all forms have.
func (r *rewriting) prepare(decisions []*discover.Decision) (need int64, err error) {
	operators := form.OperatorsOf(r.copy)
	r.inFunction = make([]bool, len(r.copy.Proto.Functions))
	for _, d := range decisions {
		if !d.Quantize {
			continue
		}
		w := &replacement{decision: d}
		if w.form, err = form.New(d.Value.Name, d.DType, d.Shape, d.Choice); err != nil {
			return 0, fmt.Errorf("tensor %s: %w", msg.Quote(d.Value.Path), err)
		}
		r.weights, r.replaced[d.Value] = append(r.weights, w), w
		need = max(need, w.form.Opset())
		switch d.Choice.Style {
		case spec.NBits:
			w.decoder = form.NewBuilder(r.copy.Domain(), r.copy.Names)
			w.tensors = operators.ReadCodes(w.form, d.Reach, w.decoder)
		case spec.QDQ:
			w.output = r.copy.Names.Fresh(d.Value.Name + "_DequantizeLinear_Output")
			operators.ReadInstead(d.Value, w.output)
		}
		if d.Value.Body != nil {
			r.inFunction[d.Value.Body.Index] = true
		}
	}
	operators.Finish()
	return need, nil
}

// Raise brings a model to an opset that has the operators needed, and to an IR version
// that has the opset. The functions named need them too.
func Raise(c *graph.Copy, need int64, functions ...*onnxpb.FunctionProto) error {
	if need == 0 {
		return nil
	}
	if err := opset.Raise(c.Proto, need, c.Names.Fresh, functions...); err != nil {
		return err
	}
	if ir := opset.IRFor(graph.Opset(c.Proto)); c.Proto.GetIrVersion() < ir {
		c.Proto.IrVersion = &ir
	}
	return nil
}

// graph puts what decodes weights in their place, in a graph and in the graphs of its
// nodes.
func (r *rewriting) graph(g *onnxpb.GraphProto, domain string) {
	b := form.NewBuilder(domain, r.copy.Names)
	gone := map[string]bool{}
	for _, t := range g.Initializer {
		w := r.weight(t)
		if w == nil || w.fake() {
			b.Tensors = append(b.Tensors, t)
		}
		if w == nil {
			continue
		}
		w.build(b)
		if codes := w.tensors.Codes; codes != nil {
			gone[w.form.Name] = true // an input, up to IR 3
			codes.DocString, codes.MetadataProps = t.DocString, t.MetadataProps
		}
	}
	nodes := r.nodes(b, g.Node, domain)
	g.Initializer = b.Tensors
	g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return gone[in.GetName()] })
	g.Node = append(b.Nodes, nodes...)
}

// function does for a function what graph does. It has no initializers but Constants.
func (r *rewriting) function(f *onnxpb.FunctionProto) {
	domain := graph.SpellingOfStandard(f.OpsetImport)
	b := form.NewBuilder(domain, r.copy.Names)
	nodes := r.nodes(b, f.Node, domain)
	f.Node = slices.Concat(b.ConstantNodes(), b.Nodes, nodes)
	if nodes, err := graph.Ordered(f.Node); err == nil {
		f.Node = nodes
	}
}

// nodes adds to b what decodes the weights in Constant nodes. It returns the nodes without
// those that held weights.
func (r *rewriting) nodes(b *form.Builder, nodes []*onnxpb.NodeProto, domain string) (kept []*onnxpb.NodeProto) {
	for _, n := range nodes {
		w := r.weight(graph.ConstantTensor(n))
		if w != nil {
			w.build(b)
			if w.tensors.Codes != nil {
				continue
			}
		}
		for _, a := range n.Attribute {
			for _, sub := range graph.Subgraphs(a) {
				r.graph(sub, domain)
			}
		}
		kept = append(kept, n)
	}
	return kept
}

// weight returns the replacement of what a tensor of the copy holds, nil if it stays.
func (r *rewriting) weight(t *onnxpb.TensorProto) *replacement {
	if t == nil {
		return nil
	}
	return r.replaced[r.copy.Value(t)]
}

// build adds what decodes the weight.
func (w *replacement) build(b *form.Builder) {
	switch w.decision.Choice.Style {
	case spec.NBits:
		b.Tensors = append(b.Tensors, w.decoder.Tensors...)
		b.Nodes = append(b.Nodes, w.decoder.Nodes...)
	case spec.QDQ:
		w.tensors = w.form.BuildFake(b, w.output)
	default:
		w.tensors = w.form.Build(b)
	}
}
