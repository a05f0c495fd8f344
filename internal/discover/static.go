package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/internal/target"
	"onnxquant/rules"
	"onnxquant/spec"
)

// StaticOptions say how activations with known ranges are quantized.
type StaticOptions struct {
	Ranges    *rules.Ranges
	Codes     actpairs.Codes // codes of activations
	Placement target.Placement
	Coarse    bool // activations are quantized even if codes are too coarse for them
	Products  bool // products of matrices make floats: see actpairs.Options
	Tables    bool // tables keep 8 bits with ReduceRange: see actpairs.Options
	Others    bool // weights of all operators get the formats of precision_info that are decoded

	Inner bool // what is inside of written-out functions stays in float: see actpairs.Inner

	// By path or name of an activation.
	Float map[string]bool // stays in float, and the nodes that read or make it
	Wide  map[string]bool // has codes of 16 bits

	inner map[*graph.Value]bool
}

// findStatic decides which values have pairs of QuantizeLinear and DequantizeLinear. It returns nil
// without Options.Static.
func findStatic(x *graph.Graph, all []*Decision, opts Options, trained map[string]bool, except Exceptions) (*actpairs.Plan, error) {
	if opts.Static == nil {
		return nil, nil
	}
	if opts.Static.Inner {
		opts.Static.inner = map[*graph.Value]bool{}
		for _, v := range actpairs.Inner(x) {
			opts.Static.inner[v] = true
		}
	}
	s := &selection{x: x, opts: opts}
	p, err := s.find(all, trained, except)
	if err != nil || len(p.Coarse) == 0 || opts.Static.Coarse {
		return p, err
	}
	s.coarse = p.Coarse
	if p, err = s.find(all, trained, except); err == nil {
		p.Coarse = s.coarse
	}
	return p, err
}

// find decides which values have pairs, given the current selection.
func (s *selection) find(all []*Decision, trained map[string]bool, except Exceptions) (*actpairs.Plan, error) {
	x, opts := s.x, s.opts
	s.left, s.kept = make([]bool, x.Nodes()+1), map[*graph.Value]bool{}
	for _, d := range all {
		s.keep(d, trained, except)
	}
	weights := actpairs.Codes{Type: dtype.Int8, Symmetric: true, Reduced: opts.ReduceRange, MinRange: opts.Static.Codes.MinRange}
	if opts.Static.Codes.IsFP8() {
		weights.Type = dtype.Float8E4M3FN
	}
	decided := map[*graph.Value]*Decision{}
	for _, d := range all {
		decided[d.Value] = d
	}
	if opts.Format == spec.Uint8 {
		weights.Type, weights.Symmetric = dtype.Uint8, false
	}
	var wide func(v *graph.Value) bool
	if len(opts.Static.Wide) > 0 {
		wide = func(v *graph.Value) bool { return opts.Static.Wide[v.Path] || opts.Static.Wide[v.Name] }
	}
	return actpairs.Find(x, actpairs.Options{
		Wide: wide, FloatProducts: opts.Static.Products, FullTables: opts.Static.Tables,
		Ranges: opts.Static.Ranges, Activations: opts.Static.Codes, Weights: weights, PerChannel: opts.Block == spec.PerChannel || opts.Block > 0,
		Int4:      actpairs.Int4{Block: func(v *graph.Value) (int, bool) { return decided[v].int4(opts) }, Rule: opts.Target.Static.Int4},
		Placement: opts.Static.Placement, Selects: s.selects, Keeps: func(v *graph.Value) bool { return s.kept[v] },
	})
}

// selection says which nodes are quantized.
type selection struct {
	x    *graph.Graph
	opts Options
	left []bool // by number of the node: stays in float because of its weight
	kept map[*graph.Value]bool

	coarse []*graph.Value // activations that stay in float, because codes are too coarse for them
}

// keep decides whether a stored tensor stays in float, together with the operators that take it as
// their weight.
func (s *selection) keep(d *Decision, trained map[string]bool, except Exceptions) {
	var readers []*onnxpb.NodeProto // operators that take it as their weight
	wanted := false
	for _, l := range d.Reach.Leaves {
		if _, weight, _ := l.Operand(d.Shape); weight {
			readers = append(readers, l.Node)
			wanted = wanted || s.selects(l.Node)
		}
	}
	if d.Reason = d.unwanted(s.opts, len(readers) > 0); d.Reason == "" && s.opts.Static.Codes.IsFP8() {
		d.Reason = d.unconvolvedFP8(readers)
	}
	if d.Reason == "" {
		d.Reason = staticObstacle(d, trained, except)
		d.Selected = wanted && d.Reason != ""
	}
	if d.Reason == "" {
		return
	}
	s.kept[d.Value] = true
	for _, n := range readers {
		s.left[s.x.Number(n)] = true
	}
}

// staticObstacle returns why a stored tensor cannot have static codes, or "".
func staticObstacle(d *Decision, trained map[string]bool, except Exceptions) string {
	if why := unchangeable(d.Value, d.Value.Output, trained); why != "" {
		return why
	}
	return except[d.Value.Path].KeepFloat
}

// unwanted returns why the options exclude static codes for a stored tensor, or "".
func (d *Decision) unwanted(opts Options, weight bool) string {
	o := *d.Override
	n, _ := dtype.Elements(d.Shape)
	switch {
	case weight && n < opts.MinElements:
		return fmt.Sprintf("fewer than %d elements", opts.MinElements)
	case weight && d.excluded(opts.Exclude):
		return "excluded"
	case weight && !opts.Include.Empty() && !d.matches(opts.Include):
		return "not included"
	case o.Format != nil && *o.Format == spec.Float:
		return FormatFloat
	case opts.weightsOnly(o):
		return reasonWeightsOnly
	}
	return ""
}

// int4 returns the block size of a weight that shall have int4 beside static activations. ok is false if it shall have
// 8 bits.
func (d *Decision) int4(opts Options) (block int, ok bool) {
	if d == nil || !slices.Contains(opts.Target.Static.Formats, spec.Int4) {
		return 0, false
	}
	format, block := opts.Format, opts.Block
	if format == spec.Int4 && d.onlyConvolved() {
		format = cmp.Or(opts.ConvFormat, spec.Int8)
	}
	switch o := d.Override; {
	case o.Format != nil:
		format = *o.Format
	case o.Bits != nil:
		format = spec.Format(fmt.Sprintf("int%d", *o.Bits))
	}
	if format != spec.Int4 {
		return 0, false
	}
	spec.SetIf(&block, d.Override.Block)
	if block == 0 || block == spec.PerTensor {
		block = target.DefaultInt4
	}
	if opts.Static.Codes.Type.Bits() != 16 {
		block = spec.PerChannel
	}
	return block, true
}

// unconvolvedFP8 returns why TensorRT does not convolve with a weight in FP8, or "". ModelOpt leaves such Conv in float,
// too.
func (d *Decision) unconvolvedFP8(readers []*onnxpb.NodeProto) string {
	if !slices.ContainsFunc(readers, func(n *onnxpb.NodeProto) bool { return strings.HasPrefix(n.GetOpType(), "Conv") }) || len(d.Shape) < 3 {
		return ""
	}
	const least, mostPixels = 16, 32
	out, in := d.Shape[0], d.Shape[1]
	switch pixels := shapes.Count(d.Shape[2:]); {
	case out < least || in < least:
		return fmt.Sprintf("TensorRT convolves in FP8 with %d channels and more, not with %d and %d", least, out, in)
	case out%least != in%least:
		return fmt.Sprintf("TensorRT convolves in FP8 if both numbers of channels have the same remainder modulo %d, not with %d and %d", least, out, in)
	case pixels > mostPixels:
		return fmt.Sprintf("TensorRT convolves in FP8 with kernels of up to %d elements, not %d", mostPixels, pixels)
	}
	return ""
}

// onlyConvolved reports whether all operators that read a weight are convolutions.
func (d *Decision) onlyConvolved() bool {
	return len(d.Reach.Leaves) > 0 && !slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return !strings.HasPrefix(l.Node.GetOpType(), "Conv") })
}

// besideCodes gives a weight of 8 bits in blocks one scale for each column where a MatMul multiplies it by an
// activation with codes. ONNX Runtime fuses the two to MatMulIntegerToFloat, which fails with scales of blocks.
func (d *Decision) besideCodes(c Choice, x *graph.Graph, activations *actpairs.Plan) Choice {
	if activations == nil || c.Format != spec.Int8 && c.Format != spec.Uint8 || c.Block <= 1 || int64(c.Block) >= c.Operand.View[c.Operand.Axis] {
		return c
	}
	for _, l := range d.Reach.Leaves {
		home := x.Home(l.Node).Graph // pairs around a body are not fused with what is in it
		coded := func(v *graph.Value) bool { return v != nil && v.Graph == home && activations.Of(v) != nil }
		if !graph.IsOperator(l.Node, "MatMul") || !slices.ContainsFunc(x.Inputs(l.Node), coded) {
			continue
		}
		d.remark(fmt.Sprintf("%s, not block %d: ONNX Runtime cannot multiply blocks of 8 bits by codes of an activation", spec.BlockName(spec.PerChannel), c.Block))
		c.Block = spec.PerChannel
		return c
	}
	return c
}

const reasonWeightsOnly = "weights only"

// weightsOnly reports whether a precision_info entry asks for a form that must be decoded.
func (o *Options) weightsOnly(e spec.Override) bool {
	format := spec.Format("")
	switch {
	case e.Format != nil:
		format = *e.Format
	case e.Bits != nil:
		format = spec.Format(fmt.Sprintf("int%d", *e.Bits))
	}
	switch {
	case o.Static.Codes.IsFP8() && format != "":
		return format != spec.FP8E4M3
	case format == spec.Int4 && slices.Contains(o.Target.Static.Formats, spec.Int4):
		return false
	}
	return weightsOnly(e)
}

func weightsOnly(o spec.Override) bool {
	eight := func(f spec.Format) bool { return f == spec.Int8 || f == spec.Uint8 }
	return o.Format != nil && !eight(*o.Format) || o.Bits != nil && *o.Bits != 8 || o.Block != nil && *o.Block > 0
}

// excluded reports whether a pattern matches the name of the tensor.
func (d *Decision) excluded(patterns *rules.Patterns) bool {
	return patterns.Match(d.Value.Name) || patterns.Match(d.Value.Path)
}

// selects reports whether a node is quantized.
func (s *selection) selects(n *onnxpb.NodeProto) bool {
	named := func(patterns *rules.Patterns) bool { return n.GetName() != "" && patterns.Match(n.GetName()) }
	stored := func(patterns *rules.Patterns) bool {
		return slices.ContainsFunc(s.x.Inputs(n), func(v *graph.Value) bool {
			return v != nil && v.Tensor != nil && patterns.Match(v.Name)
		})
	}
	switch {
	case !s.opts.Static.Placement.EveryOp && !slices.Contains(s.opts.Ops, n.GetOpType()), s.left[s.x.Number(n)]:
		return false
	case named(s.opts.Exclude), s.opts.rangeless(s.x, n) != nil, s.opts.inFloat(s.x, n) != nil, s.opts.Static.among(s.coarse, s.x, n) != nil:
		return false
	}
	return s.opts.Include.Empty() || named(s.opts.Include) || stored(s.opts.Include)
}

// rangeless returns a value that a node reads or makes and that has no range. The node then stays
// in float.
func (o *Options) rangeless(x *graph.Graph, n *onnxpb.NodeProto) *graph.Value {
	for _, v := range slices.Concat(x.Inputs(n), x.Outputs(n)) {
		if v != nil && v.Tensor == nil && o.Static.Ranges.Lacks(v.Path, v.Name) {
			return v
		}
	}
	return nil
}

// inFloat returns a value that a node reads or makes and that shall stay in float, with the node.
func (o *Options) inFloat(x *graph.Graph, n *onnxpb.NodeProto) *graph.Value {
	for _, v := range slices.Concat(x.Inputs(n), x.Outputs(n)) {
		if v != nil && v.Tensor == nil && (o.Static.Float[v.Path] || o.Static.Float[v.Name] || o.Static.inner[v]) {
			return v
		}
	}
	return nil
}

// among returns one of some values whose pair would be placed if the node were quantized, or nil.
func (o *StaticOptions) among(values []*graph.Value, x *graph.Graph, n *onnxpb.NodeProto) *graph.Value {
	around := x.Inputs(n)
	if !o.Placement.Fused {
		around = slices.Concat(around, x.Outputs(n))
	}
	for _, v := range values {
		if slices.Contains(around, v) {
			return v
		}
	}
	return nil
}

// settleStatic settles a stored tensor with static codes. It returns false if the tensor has none.
func (d *Decision) settleStatic(p *actpairs.Plan, opts Options) bool {
	t, b := p.Of(d.Value), p.Bias(d.Value)
	switch {
	case t != nil && t.Codes.Type.Bits() == 16:
		d.Reason = strings.ToLower(t.Codes.Type.String()) + " codes, as activations have"
		return true
	case t == nil && b != nil:
		d.Reason = fmt.Sprintf("int32 codes at the scale of %s · %s", msg.Quote(b.X.Value.Name), msg.Quote(b.W.Value.Name))
		return true
	case t == nil:
		return false
	}
	c := Choice{
		Style: spec.StyleStatic, Static: t, Target: opts.Target, Algorithm: spec.RTN, Format: spec.Uint8, Block: spec.PerTensor,
		Operand: reach.Operand{View: d.Shape},
	}
	switch t.Codes.Type {
	case dtype.Int8:
		c.Format = spec.Int8
	case dtype.Int4:
		c.Format = spec.Int4
	case dtype.Float8E4M3FN:
		c.Format = spec.FP8E4M3
	}
	switch {
	case t.Block > 0:
		c.Block, c.Operand.Axis = t.Block, t.Along
	case t.Axis >= 0:
		c.Block, c.Operand.Axis = spec.PerChannel, t.Axis
	}
	d.Selected, d.Quantize, d.Reason, d.Choice = true, true, "", &c
	return true
}

// unsettledStatic returns why a tensor without static codes and without other settings stays in
// float.
func (d *Decision) unsettledStatic(x *graph.Graph, opts Options, coarse []*graph.Value) string {
	if len(d.Reach.Leaves) == 0 {
		return "nothing reads it"
	}
	var readers []string
	for _, l := range d.Reach.Leaves {
		if v := opts.rangeless(x, l.Node); v != nil {
			return fmt.Sprintf("%s has no range", msg.Quote(v.Path))
		}
		switch v := opts.inFloat(x, l.Node); {
		case opts.Static.inner[v]:
			return "inside of a normalization, Gelu or HardSwish that is written out" // all of them are counted as one
		case v != nil:
			return fmt.Sprintf("%s stays in float because of its loss", msg.Quote(v.Path))
		}
		if v := opts.Static.among(coarse, x, l.Node); v != nil && !opts.Static.Coarse {
			return fmt.Sprintf("codes are too coarse for the range of %s", msg.Quote(v.Path))
		}
		readers = append(readers, l.String())
	}
	return "read by " + msg.List(readers)
}
