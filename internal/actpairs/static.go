package actpairs

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
	"onnxquant/rules"
)

// ErrRange is wrapped by errors about an activation whose range is not known.
var ErrRange = errors.New("no range")

// Options say what is quantized and how.
type Options struct {
	Ranges      *rules.Ranges
	Activations Codes // codes of activations and of stored tensors that are not weights
	Weights     Codes
	PerChannel  bool // weights have per-channel scales
	Int4        Int4
	Placement   target.Placement
	Selects     func(n *onnxpb.NodeProto) bool // whether a node is quantized
	Keeps       func(v *graph.Value) bool      // whether a stored tensor stays in float
	Wide        func(v *graph.Value) bool      // whether an activation has codes of 16 bits in place of 8; nil: none

	// FloatProducts: products of matrices make floats from codes. Operators beside them compute in float, unless a
	// convolution made the codes that they read.
	FloatProducts bool

	FullTables bool // tables that are looked up alone have all bits, also if Weights is reduced
}

// Plan says which values are quantized: of the main graph, and of bodies of If whose values have ranges.
type Plan struct {
	Tensors []*Tensor
	Biases  []*Bias
	Removed []*onnxpb.NodeProto // Relu and Clip that are removed, because codes clip at the same values
	Coarse  []*graph.Value      // activations whose range is too wide for the codes

	found  map[*graph.Value]*Tensor
	biases map[*graph.Value]*Bias
	open   map[*graph.Scope]bool
}

// Open reports whether values of a scope may be quantized.
func (p *Plan) Open(s *graph.Scope) bool { return p.open[s] }

// Tensor is a quantized value: an activation or the content of a stored tensor.
type Tensor struct {
	Value   *graph.Value
	Like    *Tensor // has the scale and zero point of this tensor; nil: see Own
	Codes   Codes
	Own     Params       // scale and zero point of an activation without Like
	Range   *graph.Value // whose range Own covers; nil if the scale is fixed
	*Stored              // nil for an activation

	// Made is the computed value of an activation: Value itself or, if nodes before it are removed,
	// the input of the first of them.
	Made *graph.Value

	Wide bool    // codes have 16 bits, those of most activations 8
	Read *Tensor // a second pair behind the first, for readers that compute with the other width; or nil

	others  []int   // numbers of the nodes that read Read
	coarser *Tensor // of 8 bits, whose values codes of 16 bits represent exactly; or nil

	like   *graph.Value
	weight bool
	axis   int // axis of the channels; noAxis: one scale
	narrow *narrow
}

const noAxis = -1

// Opset is the least opset that supports the plan.
func (p *Plan) Opset() int64 {
	need := int64(leastOpset)
	for _, t := range p.Tensors {
		switch {
		case t.Codes.Type.Bits() != 8:
			return wideOpset
		case t.Codes.IsFP8():
			need = t.Codes.Type.Opset()
		case t.Stored != nil && t.Axis != noAxis:
			need = max(need, 13)
		}
	}
	return need
}

// Of returns the quantization of a value, or nil if the value is not quantized.
func (p *Plan) Of(v *graph.Value) *Tensor {
	if p == nil {
		return nil
	}
	return p.found[v]
}

// Bias returns the quantization of a value as a bias, or nil if it is not a bias.
func (p *Plan) Bias(v *graph.Value) *Bias {
	if p == nil {
		return nil
	}
	return p.biases[v]
}

// Broken returns the stored values with NaN or infinity, among those that have been read.
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
		x: x, opts: opts, shapes: graph.NewShapes(x), types: half.Types(x), opset: x.Opset, main: x.Scope(x.File.Proto.Graph),
		tensors: map[*graph.Value]*Tensor{}, replaced: map[*graph.Value]*graph.Value{}, taken: map[*graph.Value]bool{}, followed: map[*graph.Value]bool{},
		ranges: map[*graph.Value]*graph.Value{}, fixed: map[*graph.Value]fixedRange{}, open: map[*graph.Scope]bool{}, flowing: map[*graph.Value]bool{},
	}
	m.enter(m.main)
	switch {
	case opts.Activations.Type.Bits() == 16, opts.Wide != nil:
		m.opset = max(m.opset, wideOpset)
	default:
		m.opset = max(m.opset, leastOpset)
	}
	for _, n := range m.nodes {
		if m.selected(n) {
			m.narrow(n)
		}
	}
	for _, n := range m.nodes {
		if m.selected(n) && m.joins(n) {
			ruleOf(opts.Placement, n)(m, n)
			m.follow(n)
		}
	}
	return m.finish()
}

// Opset 10 has QuantizeLinear. But what ONNX Runtime makes of the bias of a Gemm there needs the Round of
// opset 11, and the model does not load.
const (
	leastOpset = 11
	wideOpset  = 21 // the first with codes of 16 and 4 bits, and blocks
)

// marking is the state of Find.
type marking struct {
	x        *graph.Graph
	opts     Options
	types    func(*graph.Value) dtype.DType
	opset    int64
	main     *graph.Scope
	open     map[*graph.Scope]bool         // the main graph, and the bodies of If that are quantized
	nodes    []*onnxpb.NodeProto           // of these
	ranges   map[*graph.Value]*graph.Value // value → value whose range it has
	fixed    map[*graph.Value]fixedRange
	order    []*graph.Value
	tensors  map[*graph.Value]*Tensor
	biases   []*Bias
	taken    map[*graph.Value]bool // values that are biases
	followed map[*graph.Value]bool // values whose scale another value shares
	removed  []*onnxpb.NodeProto
	replaced map[*graph.Value]*graph.Value // output of a removed node → its input
	shapes   *graph.Shapes
	flowing  map[*graph.Value]bool // with FloatProducts: codes that a convolution made, or an operator behind it
}

type fixedRange struct{ lo, hi float32 }

// selected reports whether a node is quantized.
func (m *marking) selected(n *onnxpb.NodeProto) bool {
	return ruleOf(m.opts.Placement, n) != nil && m.opts.Selects(n)
}

// finish computes the scales and zero points of activations, and settles biases.
func (m *marking) finish() (*Plan, error) {
	p := &Plan{open: m.open, Removed: m.removed, found: map[*graph.Value]*Tensor{}, biases: map[*graph.Value]*Bias{}}
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
	m.widen(p)
	if m.opts.Placement.SplitSiLU {
		for _, t := range p.Tensors {
			m.splitSiLU(t)
		}
	}
	scores := m.scores()
	for _, t := range p.Tensors {
		if t.Stored == nil && (m.coarse(t, scores) || t.Wide && t.Plain() != nil && m.coarse(t.Plain(), scores)) {
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

// lookedUp reports whether operators look a stored tensor up, and nothing sums its codes: also no product that reads them.
func (m *marking) lookedUp(v *graph.Value) bool {
	return len(v.Uses) > 0 && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		if op := u.Node.GetOpType(); op != "Gather" && op != "GatherElements" {
			return op != embedding
		}
		return slices.ContainsFunc(m.x.Outputs(u.Node), func(o *graph.Value) bool {
			return slices.ContainsFunc(o.Uses, func(u graph.Use) bool { return isProduct(u.Node) || isConvolution(u.Node) })
		})
	})
}

// settle sets the codes of a tensor, and the scale and zero point of an activation.
func (m *marking) settle(t *Tensor) error {
	v := t.Value
	t.Codes = m.opts.Activations
	if t.weight && m.stored(v) {
		t.Codes = m.opts.Weights
	}
	if t.narrow != nil {
		t.Codes, t.axis = Codes{Type: dtype.Int4, Symmetric: true}, t.narrow.channels
		var err error
		t.Stored, err = m.newStored(t)
		return err
	}
	if m.stored(v) {
		if m.followed[v] {
			t.axis = noAxis
		}
		if t.axis != noAxis {
			t.Codes.Symmetric = true
		}
		t.Codes.Reduced = m.opts.Weights.Reduced && !(m.opts.FullTables && m.lookedUp(v))
		var err error
		t.Stored, err = m.newStored(t)
		return err
	}
	if t.Like != nil {
		return nil
	}
	if own, ok := fixed(v, t.Codes.Type); ok && m.opts.Placement.FixedScales {
		t.Own = own
		return nil
	}
	lo, hi, ok := m.rangeOf(v)
	if !ok {
		return fmt.Errorf("%w of %s (%s) in %s; calibrate the model again, or leave the node out with --exclude",
			ErrRange, msg.Quote(v.Path), m.readBy(v), m.opts.Ranges.Source)
	}
	t.Own, t.Range = t.Codes.For(lo, hi), m.rangedAs(v)
	return nil
}

// readBy names the node that makes v, or a node that reads it.
func (m *marking) readBy(v *graph.Value) string {
	switch {
	case v.Node != nil:
		return graph.Describe(v.Node)
	case len(v.Uses) > 0:
		return graph.Describe(v.Uses[0].Node)
	}
	return "the graph"
}
