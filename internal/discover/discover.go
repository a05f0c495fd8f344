package discover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/actpairs"
	"onnxquant/internal/coded"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
	"onnxquant/internal/recognize"
	"onnxquant/internal/target"
	"onnxquant/rules"
	"onnxquant/spec"
)

// ErrStrict is wrapped by errors about a selected weight that cannot be quantized.
var ErrStrict = errors.New("a selected weight cannot be quantized")

// Options select weights and say how they are quantized. They are resolved: defaults are filled in
// and all text is parsed.
type Options struct {
	Ops              []string        // operators whose weights are quantized
	Include, Exclude *rules.Patterns // patterns of names of weights or nodes
	MinElements      int64
	Strict           bool // a selected weight that cannot be quantized is an error

	Bits          int // 0: from Format or the default
	Format        spec.Format
	ConvFormat    spec.Format // format of convolutions; "": integers of 8 bits if Format has fewer
	Block         int         // 0: the default
	ZeroPoint     bool
	AccuracyLevel spec.AccuracyLevel // of MatMulNBits
	NoFoldBias    bool               // MatMulNBits gets no bias
	Style         spec.Style         // "": the best one for the target
	DecodeOnce    bool               // Cast and Mul decode what ONNX Runtime would decode at every run
	Smallest      bool               // codes stay codes in memory, at any cost of time
	Activations   spec.Activations
	ReduceRange   bool // codes of 7 bits; only for dynamic and static weights
	Static        *StaticOptions
	Target        *target.Engine
	Rule          spec.ScaleRule
	Algorithm     spec.Algorithm
	ScaleType     spec.ScaleType // of integer formats; "": that of the weight
	Range         spec.Range
	Memory        int64        // what the calibration of one weight, or its Hessian in algorithm best, may take
	Asked         Asked        // what the caller has set
	Calibrated    bool         // algorithm best uses the inputs of layers
	Observed      *graph.Graph // graph in which layers are searched, with functions inlined where possible
	Precision     *rules.Precision
	Importance    *rules.Importance
	Names         *rules.Names // names of weights in Importance
	Known         *Known       // from plans that select the same tensors; or nil
}

// Unselected is how the reason of a weight begins that Options.Ops does not select.
const Unselected = "operator not selected: "

// FormatFloat is the reason of weights that settings keep in float.
const FormatFloat = "its format is float"

// Decision says whether and how one float tensor is quantized, and why.
type Decision struct {
	Value *graph.Value
	DType dtype.DType
	Shape []int64
	Bytes int64
	Reach reach.Reach // readers of the tensor, if it is selected

	Selected bool           // by the options
	Override *spec.Override // the tensor's entry in Options.Precision; never nil

	Quantize bool
	Reason   string  // why it is not quantized
	Choice   *Choice // how it is quantized; never nil
	Note     string  // how the choice differs from the request
	Fallback string  // first part of Note, if the format is a fallback
	Unmet    []Unmet // settings that were asked for and that it does not get

	Layers []Layer // layers by which codes are calibrated, or nil

	Given *coded.Content // codes that the content of the tensor has already, or nil

	Importance []float32 // importance of each index of the reduction axis, for blockwise formats; nil: all equal

	unknown string // why the reduction axis is unknown, or ""
}

func (d *Decision) tensor() Tensor { return Tensor{d.Value, d.DType, d.Shape, d.Reach} }

// Tensors without an entry, and unselected tensors, share these values: a model may have very many.
var (
	noOverride = &spec.Override{}
	noChoice   = &Choice{}
)

// Choice says how a weight is quantized.
type Choice struct {
	Format        spec.Format
	Target        *target.Engine
	Rule          spec.ScaleRule
	Algorithm     spec.Algorithm // how codes and scales are found
	ScaleType     spec.ScaleType // of integer formats; "": that of the weight
	Range         spec.Range
	ZeroPoint     bool
	Mins          bool // float32 numbers are subtracted from each block, which its codes came with
	Block         int  // elements per block; spec.PerChannel: the whole axis
	Style         spec.Style
	NBits         NBits              // only in style nbits
	Dynamic       Dynamic            // only in style dynamic
	ReduceRange   bool               // codes use one bit less; only in style dynamic
	Static        *actpairs.Tensor   // only in style static
	AccuracyLevel spec.AccuracyLevel // of MatMulNBits, only in style nbits
	NoFoldBias    bool               // MatMulNBits gets no bias, only in style nbits
	Operand       reach.Operand      // blocks run along its axis
	Apart         bool               // codes get a third axis, so that ONNX Runtime neither fuses nor transposes them
	Folded        bool               // Cast and Mul decode it, which ONNX Runtime folds when it loads the model
	StoredZeros   bool               // zero points of 0 are stored, because ONNX Runtime then fuses the codes
}

// All makes a decision for each float tensor of the model, and a plan for its activations. The plan
// is nil unless activations are static.
func All(x *graph.Graph, opts Options, except Exceptions) ([]*Decision, *actpairs.Plan, error) {
	all := undecided(x)
	known := opts.known(x, all)
	for _, d := range all {
		d.Override = overrideOf(opts.Precision, d.Value)
		if opts.Static != nil { // otherwise tensor by tensor, below
			d.Reach = reach.Of(x, d.Value, d.Shape)
			d.overrideByNodes(opts.Precision)
			d.overrideByCodes(x, opts, except[d.Value.Path].Anew)
		}
	}
	s := &settling{
		x: x, opts: opts, except: except,
		trained: graph.TrainedNames(x.File.Proto), shapes: graph.NewShapes(x),
	}
	if !known {
		s.parts = recognize.Parts(x)
	}
	var err error
	if s.activations, err = findStatic(x, all, opts, s.trained, except); err != nil {
		return nil, nil, err
	}
	lost := Exceptions{}
	for _, d := range all {
		if known && d.Reason != "" {
			continue
		}
		if opts.Static == nil {
			d.Reach = reach.Of(x, d.Value, d.Shape)
			d.overrideByNodes(opts.Precision)
			d.overrideByCodes(x, opts, except[d.Value.Path].Anew)
		}
		err := s.settle(d)
		if d.lostMins() {
			lost[d.Value.Path] = Exception{Anew: true}
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if !d.Selected {
			d.Reach = reach.Reach{}
		}
	}
	if len(lost) > 0 {
		return All(x, opts, except.And(lost))
	}
	opts.remember(x, all)
	pairLSTMs(x, all)
	s.settleExperts(all)
	s.settleEmbeddings(all)
	return append(all, elsewhere(x, opts.Precision)...), s.activations, nil
}

// undecided lists the float values that are stored in the model.
func undecided(x *graph.Graph) []*Decision {
	decisions := make([]Decision, 0, len(x.Values)+len(x.Unusual)) // one allocation
	for _, v := range x.Values {
		if typ := dtype.DType(v.Tensor.GetDataType()); typ.Float() {
			d := Decision{Value: v, DType: typ, Shape: v.Tensor.GetDims(), Bytes: graph.SizeOf(v.Tensor), Choice: noChoice}
			decisions = append(decisions, d)
		}
	}
	for _, v := range x.Unusual {
		u := v.Unusual()
		decisions = append(decisions, Decision{Value: v, DType: u.DType, Shape: u.Shape, Bytes: u.Bytes, Choice: noChoice})
	}
	all := make([]*Decision, len(decisions))
	for i := range decisions {
		all[i] = &decisions[i]
	}
	return all
}

// settling has what a decision depends on.
type settling struct {
	x           *graph.Graph
	opts        Options
	except      Exceptions
	trained     map[string]bool
	parts       map[*graph.Value]string
	shapes      *graph.Shapes
	activations *actpairs.Plan
}

// settle makes the decision for a tensor. Each step takes the current choice and returns it with
// more settled. The order of the steps matters.
func (s *settling) settle(d *Decision) error {
	opts, except := s.opts, s.except[d.Value.Path]
	if s.activations != nil && (d.settleStatic(s.activations, opts) || !weightsOnly(*d.Override)) {
		if !d.Quantize && d.Reason == "" {
			d.Reason = d.unsettledStatic(s.x, opts, s.activations.Coarse)
		}
		if d.Selected && !d.Quantize && opts.Strict {
			return fmt.Errorf("%w: %s: %s", ErrStrict, msg.Quote(d.Value.Path), d.Reason)
		}
		return nil
	}
	if d.Reason = s.parts[d.Value]; d.Reason != "" {
		return nil
	}
	if s.activations != nil && opts.Static.Others {
		opts.Ops = reach.KnownOps
	}
	operand, reason := d.selectBy(opts)
	if d.Reason = reason; reason != "" {
		return nil
	}
	c, err := d.choose(operand, opts, except.SmallerAsInt8)
	if err != nil {
		return fmt.Errorf("tensor %s: %w", msg.Quote(d.Value.Path), err)
	}
	if c.Format == spec.Float {
		d.Reason, d.Choice = FormatFloat, &c
		return nil
	}
	c = d.alongSums(c, s.x, opts)
	d.Selected = true
	if d.Reason = d.obstacle(s.trained, except.KeepFloat); d.Reason == "" {
		if c, d.Reason = d.fit(c, s.x, opts); d.Reason != "" {
			d.miss(opts.Asked.Format && opts.Target.Target != spec.Portable, Unmet{Setting: "format", Asked: string(c.Format), Why: d.Reason})
		}
	}
	if d.Reason == "" {
		c = d.withMins(d.besideCodes(c, s.x, s.activations))
		if c, d.Reason = d.inStyle(c, s.x, s.shapes, opts, except.ForceDQ); d.Reason != "" {
			d.miss(opts.Asked.Style, Unmet{Setting: "style", Asked: string(opts.Style), Why: d.Reason})
		}
	}
	if d.Reason == "" {
		c = d.keptApart(c, s.x)
		c = d.withScales(c, except.Scales, opts)
		c = d.atLevel(c, s.x, except)
		c = d.calibrated(c, s.x, opts, except.MSE)
		c = d.estimated(c, s.x, opts)
		c.Mins = c.Mins && !c.ScaleType.Smaller() && (c.Style == spec.DQ || c.Style == spec.NBits)
	}
	if d.Reason != "" && opts.Strict {
		return fmt.Errorf("%w: %s: %s", ErrStrict, msg.Quote(d.Value.Path), d.Reason)
	}
	d.Quantize, d.Choice = d.Reason == "", &c
	return nil
}

// overrideOf returns the precision_info entry of a value. If it has none, overrideOf returns the
// entry of a tensor from which it was made.
func overrideOf(p *rules.Precision, v *graph.Value) *spec.Override {
	if p == nil {
		return noOverride
	}
	for _, v := range append([]*graph.Value{v}, v.From()...) {
		if o := p.Shared(v.Path, v.Name); o != nil {
			return o
		}
	}
	return noOverride
}

// overrideByNodes takes the precision_info entry of a node that reads the tensor, if no entry is about the
// tensor itself.
func (d *Decision) overrideByNodes(p *rules.Precision) {
	if p == nil || d.Override != noOverride {
		return
	}
	if o := p.Shared(readerNames(d.Reach.Leaves)...); o != nil {
		d.Override = o
	}
}

// overrideByCodes asks for the format of the codes that the content of the tensor has already, unless the
// precision_info says something about the tensor. anew is as in Exception.
func (d *Decision) overrideByCodes(x *graph.Graph, opts Options, anew bool) {
	if d.Override != noOverride || len(d.Shape) != 2 && len(d.Shape) != 3 || d.Value.Tensor == nil {
		return
	}
	content, err := x.File.Payload(d.Value.Tensor)
	if err != nil {
		return
	}
	if d.Given = coded.Of(content); d.Given == nil {
		return
	}
	toQMoE := opts.Style == spec.NBits || opts.Style == "" && opts.Target.Target != spec.Portable
	if anew {
		return
	}
	if d.Given.Format == spec.MXFP4 && toQMoE && !opts.Target.NoQMoE && slices.ContainsFunc(d.Reach.Leaves, readsExperts) {
		return // a QMoE takes integers
	}
	d.Override = d.Given.Override(d.Shape[d.Given.Axis])
	if len(d.Shape) == 3 {
		d.Override.Axis = &d.Given.Axis // also where a Gather takes matrices out of a stack
	}
}

// readerNames lists the names of nodes that read a tensor.
func readerNames(leaves []reach.Leaf) (names []string) {
	for _, l := range leaves {
		if name := l.Node.GetName(); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// ReaderNames lists the names of the nodes that read float tensors of a model.
func ReaderNames(x *graph.Graph) (names []string) {
	for _, d := range undecided(x) {
		names = append(names, readerNames(reach.Of(x, d.Value, d.Shape).Leaves)...)
	}
	return names
}

// Reader is the name of a node that reads the tensor, if the tensor's own name is a number of an exporter.
func (d *Decision) Reader() string {
	if names := readerNames(d.Reach.Leaves); len(names) > 0 && graph.Numbered(d.Value.Name) {
		return names[0]
	}
	return d.Value.Reader()
}

// elsewhere lists the float tensors that are not values of the graph: those in training_info and in
// attributes. It leaves out scalars.
func elsewhere(x *graph.Graph, p *rules.Precision) (all []*Decision) {
	for where, t := range x.Elsewhere() {
		typ := dtype.DType(t.GetDataType())
		if n, _ := dtype.Elements(t.GetDims()); !typ.Float() || n < 2 {
			continue
		}
		reason := "in an attribute"
		if strings.HasPrefix(where, modelfile.InTraining) {
			reason = "in training_info"
		}
		v := &graph.Value{Name: t.GetName(), Path: where, Tensor: t}
		all = append(all, &Decision{
			Value: v, DType: typ, Shape: t.GetDims(), Bytes: graph.SizeOf(t),
			Reason: reason, Override: overrideOf(p, v), Choice: noChoice,
		})
	}
	return all
}

// inStyle settles the style of the weight and, for nbits and dynamic, its form. forceDQ is a reason
// against nbits and dynamic, or "". why says that the weight stays in float.
func (d *Decision) inStyle(c Choice, x *graph.Graph, s *graph.Shapes, opts Options, forceDQ string) (_ Choice, why string) {
	style := opts.Style
	c.Style = spec.DQ
	if why := d.betterFloat(c, x, opts); why != "" {
		return c, why
	}
	c = d.dynamic(c, x, opts, forceDQ)
	switch {
	case c.Style == spec.StyleDynamic:
	case style == "" && c.Target.Folds:
		return d.cheapest(c, x, s, opts, forceDQ)
	case style == "" && opts.DecodeOnce && c.Target.Target == spec.Portable:
		return d.once(c, x, s), ""
	case style == spec.NBits || style == "":
		return d.anyForm(c, x, s, opts, forceDQ), ""
	case style == spec.QDQ && d.DType == dtype.Float64:
		return c, "QuantizeLinear does not take float64"
	case style == spec.QDQ && !c.Format.MadeByQuantizeLinear():
		return c, fmt.Sprintf("QuantizeLinear does not make %s", c.Format)
	case style == spec.QDQ && len(d.Value.Returned()) > 0:
		return c, "its function returns it"
	case style == spec.QDQ && d.Value.Output:
		return c, "its graph returns it"
	case style == spec.QDQ:
		c.Style = spec.QDQ
	}
	if c.Style != spec.NBits && (c.Style != spec.StyleDynamic || c.Dynamic.Kind == Embedding) {
		return c, undecoded(c, x)
	}
	return c, ""
}

// codeReaders says which operators could have read the codes of the weight.
func (d *Decision) codeReaders() string {
	if d.OfExperts() {
		return "no QMoE: "
	}
	return "no MatMulNBits or GatherBlockQuantized: "
}

// anyForm gives a weight the style nbits, if that is asked for or better for the target, and otherwise the
// style dq.
func (d *Decision) anyForm(c Choice, x *graph.Graph, s *graph.Shapes, opts Options, forceDQ string) Choice {
	style := opts.Style
	if style != spec.NBits && !d.direct(c, x, s) {
		return c
	}
	f, why := d.findNBits(x, s, c)
	why = cmp.Or(forceDQ, why)
	c.StoredZeros = why != "" && style == "" && d.fusedWithZeros(c, x, s)
	switch {
	case c.StoredZeros:
		d.remark("zero points of 0 are stored: with them it does")
	case why != "":
		d.remark(d.codeReaders() + why)
		d.miss(opts.Asked.Style && forceDQ == "", Unmet{Setting: "style", Asked: "nbits", Got: string(spec.DQ), Why: why})
	default:
		c.Style, c.NBits = spec.NBits, f
	}
	return c
}

// keptApart gives codes a third axis if ONNX Runtime would fuse the weight and then compute wrongly
// or fail. It applies to all weights of products: a Cast, a function, an If or a second reader in
// between does not always prevent the fusion.
func (d *Decision) keptApart(c Choice, x *graph.Graph) Choice {
	if c.Style == spec.NBits || c.Folded || c.Mins || !c.Format.Scaled() || len(c.Operand.View) != 2 || !d.multiplied() {
		return c
	}
	switch columns := c.Operand.View[1-c.Operand.Axis]; {
	case c.Operand.Axis == 0 && target.SpoiltIfFused(c.Format.Bits(), columns):
		c.Apart = true
		d.remark(fmt.Sprintf("codes with a third axis: where ONNX Runtime fuses 2 bits, it computes wrongly with %d columns, not a multiple of 4", columns))
	case c.Operand.Axis == 1 && target.Refused(c.Format.Bits(), c.ZeroPoint || !c.Format.Signed(), c.Block):
		c.Apart = true
		d.remark("codes with a third axis: otherwise ONNX Runtime refuses a Transpose of 2-bit codes with a zero point per channel")
	case (c.Target.NBits || c.Target.Target == spec.Portable) && target.ZeroedIfFused(d.DType, x.Nested(d.Value)):
		c.Apart = true
		d.remark("codes with a third axis: where ONNX Runtime fuses float16 in a body of If, Loop or Scan, it computes zeros")
	}
	return c
}

// multiplied reports whether a MatMul or Gemm reads the weight.
func (d *Decision) multiplied() bool {
	return slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		return l.Node.GetOpType() == "MatMul" || l.Node.GetOpType() == "Gemm"
	})
}

// atLevel sets another accuracy_level if ONNX Runtime computes wrongly with the default one, or if an exception wants it.
func (d *Decision) atLevel(c Choice, x *graph.Graph, except Exception) Choice {
	switch {
	case c.AccuracyLevel != spec.AccuracyDefault:
	case except.Huge: // its elements are too large for the default
		c.AccuracyLevel = spec.AccuracyFloat32
	case except.Level.Level != spec.AccuracyDefault:
		c.AccuracyLevel = except.Level.Level
		d.remark(fmt.Sprintf("accuracy_level %d: %s", c.AccuracyLevel, except.Level.Why))
	case c.Style != spec.NBits || !c.NBits.Product || c.NBits.Bnb4:
	case SharesHalf(d.DType, d.Reach):
		c.AccuracyLevel = spec.AccuracyFloat32
		d.remark("accuracy_level 1: with 4, ONNX Runtime computes wrongly where nodes share float16 scales")
	case ScalesMayVanish(x, d.tensor(), c):
		c.AccuracyLevel = spec.AccuracyFloat32
		d.remark("accuracy_level 1: with 4, ONNX Runtime computes zeros if it does not make the scales float32 constants")
	}
	return c
}

// ScalesMayVanish reports whether ONNX Runtime 1.31 may compute zeros with accuracy_level 4: the scales of a
// MatMulNBits are no float32 constants when it prepares them. In a body of If, Loop or Scan that is so with
// the default options, elsewhere with fewer optimizations. WebGPU takes them in the main graph.
func ScalesMayVanish(x *graph.Graph, w Tensor, c Choice) bool {
	if w.DType != dtype.Float16 && !c.ScaleType.Smaller() {
		return false
	}
	return c.Target.Target != spec.ORTWeb || x.Nested(w.Value) || w.readInBody(x)
}

// ReadInBody reports whether an operator in a body of If, Loop or Scan reads the weight.
func (d *Decision) ReadInBody(x *graph.Graph) bool { return d.tensor().readInBody(x) }

func (t Tensor) readInBody(x *graph.Graph) bool {
	return slices.ContainsFunc(t.Reach.Leaves, func(l reach.Leaf) bool { return x.Home(l.Node).Owner != nil })
}

// SharesHalf reports whether several products read a float16 weight. With accuracy_level 4, ONNX
// Runtime 1.31 then prepares the shared scales for only one of the MatMulNBits.
func SharesHalf(typ dtype.DType, read reach.Reach) bool {
	products := 0
	for _, l := range read.Leaves {
		if l.Node.GetOpType() != "Gather" {
			products++
		}
	}
	return typ == dtype.Float16 && products > 1
}

// remark adds a text to the note.
func (d *Decision) remark(text string) {
	if d.Note != "" {
		d.Note += "; "
	}
	d.Note += text
}
