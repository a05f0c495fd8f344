package static

import (
	"errors"
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/rules"
)

// ErrRange is wrapped by the error that the range of an activation is not known.
var ErrRange = errors.New("no range")

// Options say what is quantized, and how.
type Options struct {
	Ranges      *rules.Ranges
	Activations Codes // of activations, and of stored tensors that no operator takes as its weight
	Weights     Codes
	PerChannel  bool // weights have a scale for each channel
	Placement   Placement
	Selects     func(n *onnxpb.NodeProto) bool // whether a node is quantized
	Keeps       func(v *graph.Value) bool      // whether a stored tensor stays in float
}

// Plan says which values of the main graph are quantized.
type Plan struct {
	Tensors []*Tensor
	Biases  []*Bias
	Removed []*onnxpb.NodeProto // Relu and Clip, where the codes end where they do
	Coarse  []*graph.Value      // activations that codes are too coarse for

	found  map[*graph.Value]*Tensor
	biases map[*graph.Value]*Bias
}

// Tensor is a value that is quantized: an activation, or the content of a stored tensor.
type Tensor struct {
	Value   *graph.Value
	Like    *Tensor // the one that has its scale and zero point; nil: it has its own
	Codes   Codes
	Own     Params // of an activation without Like
	*Stored        // nil for an activation

	// Made is the value that is computed for an activation: what the first of the removed nodes
	// before it reads, or the value itself.
	Made *graph.Value

	like   *graph.Value
	weight bool
	axis   int // of the channels; noAxis: one scale
}

const noAxis = -1

// Opset is the least opset that has the forms of the plan.
func (p *Plan) Opset() int64 {
	need := int64(firstQDQ)
	for _, t := range p.Tensors {
		switch {
		case t.Codes.Type.Bits() == 16:
			return wideOpset
		case t.Stored != nil && t.Axis != noAxis:
			need = 13
		}
	}
	return need
}

// Of returns what becomes of a value, nil if it is not quantized.
func (p *Plan) Of(v *graph.Value) *Tensor {
	if p == nil {
		return nil
	}
	return p.found[v]
}

// Bias returns what becomes of a value as a bias, nil if it is none.
func (p *Plan) Bias(v *graph.Value) *Bias {
	if p == nil {
		return nil
	}
	return p.biases[v]
}

// Broken returns the stored values with NaN or infinity, of those that were read.
func (p *Plan) Broken() (all []*graph.Value) {
	if p == nil {
		return nil
	}
	for _, t := range p.Tensors {
		if t.Stored != nil && t.broken.Load() {
			all = append(all, t.Value)
		}
	}
	for _, b := range p.Biases {
		if b.broken.Load() {
			all = append(all, b.Value)
		}
	}
	return all
}

// Find decides which values are quantized.
func Find(x *graph.Graph, opts Options) (*Plan, error) {
	m := &marking{
		x: x, opts: opts, types: half.Types(x), opset: x.Opset, main: x.Scope(x.File.Proto.Graph),
		tensors: map[*graph.Value]*Tensor{}, replaced: map[*graph.Value]*graph.Value{}, taken: map[*graph.Value]bool{}, followed: map[*graph.Value]bool{},
		ranges: map[*graph.Value]*graph.Value{}, fixed: map[*graph.Value]fixedRange{},
	}
	switch {
	case opts.Activations.Type.Bits() == 16:
		m.opset = max(m.opset, wideOpset)
	case m.opset < firstQDQ:
		m.opset = leastOpset
	}
	for _, n := range x.File.Proto.Graph.Node {
		if m.selected(n) {
			m.narrow(n)
		}
	}
	for _, n := range x.File.Proto.Graph.Node {
		if m.selected(n) {
			opts.Placement.rule(n)(m, n)
		}
	}
	return m.finish()
}

// A model of an opset before firstQDQ, which has no QuantizeLinear, gets leastOpset.
const (
	firstQDQ   = 10
	leastOpset = 11
	wideOpset  = 21 // the first with codes of 16 bits
)

// marking is the state of Find.
type marking struct {
	x        *graph.Graph
	opts     Options
	types    func(*graph.Value) dtype.DType
	opset    int64
	main     *graph.Scope
	ranges   map[*graph.Value]*graph.Value // value → value whose range it has
	fixed    map[*graph.Value]fixedRange
	order    []*graph.Value
	tensors  map[*graph.Value]*Tensor
	biases   []*Bias
	taken    map[*graph.Value]bool // values that are a bias
	followed map[*graph.Value]bool // values whose scale another one has
	removed  []*onnxpb.NodeProto
	replaced map[*graph.Value]*graph.Value // output of a removed node → its input
}

type fixedRange struct{ lo, hi float32 }

// selected reports whether a node is quantized.
func (m *marking) selected(n *onnxpb.NodeProto) bool {
	return m.opts.Placement.rule(n) != nil && m.opts.Selects(n)
}

// finish settles scales and zero points.
func (m *marking) finish() (*Plan, error) {
	p := &Plan{Removed: m.removed, found: map[*graph.Value]*Tensor{}, biases: map[*graph.Value]*Bias{}}
	for _, v := range m.order {
		t := m.tensors[v]
		if t == nil {
			continue
		}
		p.Tensors, p.found[v] = append(p.Tensors, t), t
		t.Made = v
		for m.replaced[t.Made] != nil {
			t.Made = m.replaced[t.Made]
		}
		if t.like != nil {
			t.Like = m.tensors[t.like]
		}
		if m.stored(v) {
			t.Like = nil
		}
	}
	for _, t := range p.Tensors {
		if err := m.settle(t); err != nil {
			return nil, err
		}
	}
	scores := m.scores()
	for _, t := range p.Tensors {
		if t.Stored == nil && m.coarse(t, scores) {
			p.Coarse = append(p.Coarse, t.Value)
		}
	}
	for _, b := range m.biases {
		if b.settle(p) && !m.opts.Placement.FloatBias {
			p.Biases, p.biases[b.Value] = append(p.Biases, b), b
		}
	}
	return p, nil
}

// settle finds the codes of a tensor, and the scale and zero point of an activation.
func (m *marking) settle(t *Tensor) error {
	v := t.Value
	t.Codes = m.opts.Activations
	if t.weight && m.stored(v) {
		t.Codes = m.opts.Weights
	}
	if m.stored(v) {
		if m.followed[v] {
			t.axis = noAxis
		}
		if t.axis != noAxis {
			t.Codes.Symmetric = true
		}
		t.Codes.Reduced = m.opts.Weights.Reduced
		var err error
		t.Stored, err = m.newStored(t)
		return err
	}
	if t.Like != nil {
		return nil
	}
	if own, ok := m.opts.Placement.fixed(v, t.Codes.Type); ok {
		t.Own = own
		return nil
	}
	lo, hi, ok := m.rangeOf(v)
	if !ok {
		return fmt.Errorf("%w of %s (%s) in %s; calibrate the model again, or leave the node out with --exclude",
			ErrRange, msg.Quote(v.Path), m.readBy(v), m.opts.Ranges.Source)
	}
	t.Own = t.Codes.params(lo, hi)
	return nil
}

// readBy names the node that makes v, or one that reads it.
func (m *marking) readBy(v *graph.Value) string {
	switch {
	case v.Node != nil:
		return graph.Describe(v.Node)
	case len(v.Uses) > 0:
		return graph.Describe(v.Uses[0].Node)
	}
	return "the graph"
}
