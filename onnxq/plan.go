package onnxq

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// conversion is the part of a Plan that carries it out.
type conversion struct {
	model *Model
	opts  Options
	*rewritten
	workers int
	limit   int64 // elements that each holds at a time
}

// Plan decides what becomes of every float tensor and how the output is laid
// out. It reads no weights.
func (m *Model) Plan(opts Options) (*Plan, error) {
	return m.plan(opts, nil)
}

// plan makes a plan that leaves alone the weights that turned out unfit.
func (m *Model) plan(opts Options, unfit map[*onnxpb.TensorProto]string) (*Plan, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Precision != nil {
		if err := opts.Precision.Unused(m.tensorNames()); err != nil {
			return nil, err
		}
	}
	if err := m.checkPatterns(slices.Concat(opts.Include, opts.Exclude)); err != nil {
		return nil, err
	}
	decisions, err := discover(m.file.Proto, m.index, opts, unfit)
	if err != nil {
		return nil, err
	}
	r, err := m.rewrite(decisions)
	if err != nil {
		return nil, err
	}
	c := &conversion{model: m, opts: opts, rewritten: r}
	c.workers, c.limit = workers(opts.Threads, opts.Memory)
	if err := c.place(opts.ExternalData); err != nil {
		return nil, err
	}
	return c.describe(decisions, unfit), nil
}

// tensorNames lists the names that a precision_info may use: those in subgraphs
// also with the way there.
func (m *Model) tensorNames() []string {
	var names []string
	for _, v := range m.index.values {
		if modelfile.DType(v.tensor.GetDataType()).Float() {
			names = append(names, v.name)
			if v.path != v.name {
				names = append(names, v.path)
			}
		}
	}
	return names
}

// checkPatterns refuses a pattern that means nothing in the model: it is likely
// a slip, and would quantize what was to be left alone.
func (m *Model) checkPatterns(patterns []string) error {
	names := slices.Concat(m.tensorNames(), m.index.nodes)
	for _, p := range patterns {
		if slices.ContainsFunc(names, func(name string) bool { return matchName(p, name) }) {
			continue
		}
		message := fmt.Sprintf("no weight and no node is called %s", quote(p))
		if near, ok := nearestName(p, names); ok {
			message += "; the nearest name is " + quote(near)
		}
		return errors.New(message)
	}
	return nil
}

func walkGraphs(g *onnxpb.GraphProto, visit func(*onnxpb.GraphProto)) {
	visit(g)
	walkSubgraphs(g.Node, visit)
}

func walkSubgraphs(nodes []*onnxpb.NodeProto, visit func(*onnxpb.GraphProto)) {
	for _, n := range nodes {
		for _, a := range n.Attribute {
			for _, sub := range subgraphs(a) {
				walkGraphs(sub, visit)
			}
		}
	}
}

// walkNodes visits the nodes of the graph and of the functions, and of all graphs
// in them.
func walkNodes(m *onnxpb.ModelProto, visit func(*onnxpb.NodeProto)) {
	each := func(nodes []*onnxpb.NodeProto) {
		for _, n := range nodes {
			visit(n)
		}
	}
	inside := func(g *onnxpb.GraphProto) { each(g.Node) }
	walkGraphs(m.Graph, inside)
	for _, f := range m.Functions {
		each(f.Node)
		walkSubgraphs(f.Node, inside)
	}
}

// describe makes the public plan.
func (c *conversion) describe(decisions []*decision, unfit map[*onnxpb.TensorProto]string) *Plan {
	before, after := c.model.file.Proto, c.proto
	p := &Plan{
		OpsetBefore: opsetOf(before),
		OpsetAfter:  opsetOf(after),
		IRBefore:    before.GetIrVersion(),
		IRAfter:     after.GetIrVersion(),
		InBytes:     c.model.Size(),
		OutBytes:    c.size(),
		External:    c.external(),
		Tensors:     []TensorPlan{},
		conv:        c,
	}
	weights := map[*decision]*weight{}
	for _, w := range c.weights {
		weights[w.decision] = w
	}
	for _, d := range decisions {
		t := TensorPlan{
			Name:      d.path,
			DType:     d.dtype.String(),
			Shape:     append([]int64{}, d.shape...),
			Bytes:     sizeOf(d.tensor),
			Consumers: []string{},
			Decision:  Keep,
			Reason:    d.reason,
		}
		t.OutBytes = t.Bytes
		for _, u := range d.uses {
			t.Consumers = append(t.Consumers, u.String())
		}
		if w := weights[d]; w != nil {
			t.Decision = Quantize
			t.Format, t.Axis, t.Block = d.choice.format, d.choice.axis, d.choice.block
			t.Form, t.Note = w.formName(), d.note
			t.OutBytes = w.size()
			w.planned = len(p.Tensors)
		}
		p.Tensors = append(p.Tensors, t)
		if o, ok := d.override(c.opts.Precision); ok && !d.quantize && d.choice.format != Float && o != (Override{}) && (o.Format == nil || *o.Format != Float) {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s stays in float though precision_info names it: %s", quote(d.path), d.reason))
		}
		if unfit[d.tensor] != "" {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s stays in float: %s", quote(d.path), d.reason))
		}
	}
	for _, w := range c.weights {
		if w.defectInORT() {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s: ONNX Runtime 1.31 computes 2-bit weights wrongly where columns (%d) are no multiple of 4, unless graph optimization is off", quote(w.path), w.inner))
		}
	}
	if len(c.weights) == 0 {
		p.Warnings = append(p.Warnings, "nothing is quantized: no weight was selected")
	} else if p.OutBytes > p.InBytes {
		p.Warnings = append(p.Warnings, fmt.Sprintf("the output is larger than the input (%d bytes against %d): its weights are too small to gain", p.OutBytes, p.InBytes))
	}
	return p
}

func opsetOf(m *onnxpb.ModelProto) int64 {
	version, _ := opset.Of(m.OpsetImport)
	return version
}
