package onnxq

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// conversion is the part of a Plan that carries it out.
type conversion struct {
	model *Model
	opts  Options
	*rewritten
	layout  *modelfile.Layout
	workers int
	limit   int64 // elements that each holds at a time
	data    dataLayout
}

// dataLayout places contents in the external data file.
type dataLayout struct {
	size    int64
	offsets []int64 // of each content; -1 for those in the model file
}

// limits of protobuf and of external data.
const (
	maxEmbedded  = 1<<31 - 1
	pageSize     = 4 << 10
	largeContent = 64 << 10 // starts on a page
	alignment    = 16
)

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
	if err := c.place(); err != nil {
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

// place lays out the output, with external data where it is wanted or needed.
func (c *conversion) place() error {
	if c.opts.ExternalData != ExternalAlways {
		if err := c.encode(""); err != nil {
			return err
		}
		if c.layout.Size <= maxEmbedded {
			return nil
		}
		if c.opts.ExternalData == ExternalNever {
			return fmt.Errorf("the output would have %d bytes, more than the 2 GiB that one file may: leave external data to auto", c.layout.Size)
		}
	}
	c.moveOut()
	// Any name will do until the output's is known.
	if err := c.encode("model.onnx.data"); err != nil {
		return err
	}
	if c.layout.Size > maxEmbedded {
		return fmt.Errorf("the model file would have %d bytes, more than 2 GiB, even with external data: its large tensors are in attributes of nodes", c.layout.Size)
	}
	return nil
}

// moveOut gives the larger initializers a place in the data file. Tensors in
// attributes stay: not every runtime looks for them outside.
func (c *conversion) moveOut() {
	initializers := map[*onnxpb.TensorProto]bool{}
	walkGraphs(c.proto.Graph, func(g *onnxpb.GraphProto) {
		for _, t := range g.Initializer {
			initializers[t] = true
		}
	})
	c.data.offsets = make([]int64, len(c.contents))
	for i, t := range c.tensors {
		c.data.offsets[i] = -1
		size := c.contents[i].size
		if size <= inlineSize || !initializers[t] {
			continue
		}
		align := int64(alignment)
		if size >= largeContent {
			align = pageSize
		}
		off := (c.data.size + align - 1) / align * align
		c.data.offsets[i], c.data.size = off, off+size
	}
}

// encode lays out the model file, with its external data in a file named
// location.
func (c *conversion) encode(location string) (err error) {
	sizes := make([]int64, len(c.contents))
	for i, t := range c.tensors {
		sizes[i] = c.contents[i].size
		if c.external() && c.data.offsets[i] >= 0 {
			t.Payload = nil
			t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
			t.ExternalData = []*onnxpb.StringStringEntryProto{
				{Key: ptr("location"), Value: ptr(location)},
				{Key: ptr("offset"), Value: ptr(strconv.FormatInt(c.data.offsets[i], 10))},
				{Key: ptr("length"), Value: ptr(strconv.FormatInt(sizes[i], 10))},
			}
		}
	}
	c.layout, err = modelfile.NewLayout(c.proto, sizes)
	return err
}

func (c *conversion) external() bool { return c.data.offsets != nil }

func walkGraphs(g *onnxpb.GraphProto, visit func(*onnxpb.GraphProto)) {
	visit(g)
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			for _, sub := range subgraphs(a) {
				walkGraphs(sub, visit)
			}
		}
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
		OutBytes:    c.layout.Size + c.data.size,
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
			t.Form = w.formName()
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
