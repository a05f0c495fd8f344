package discover

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/reach"
	"onnxquant/internal/static"
	"onnxquant/internal/target"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// ErrStrict is wrapped by errors about a selected weight that cannot be quantized.
var ErrStrict = errors.New("a selected weight cannot be quantized")

// Options select weights and say how they are quantized. They are resolved: defaults are
// filled in and all text is parsed.
type Options struct {
	Ops              []string        // operators whose weights are quantized
	Include, Exclude *rules.Patterns // of names of weights or nodes
	MinElements      int64
	Strict           bool // a selected weight that cannot be quantized is an error

	Bits          int // 0: as Format or the default says
	Format        spec.Format
	ConvFormat    spec.Format // of convolutions; "": integers of 8 bits where Format has fewer
	Block         int         // 0: the default
	ZeroPoint     bool
	AccuracyLevel spec.AccuracyLevel // of MatMulNBits
	NoFoldBias    bool               // MatMulNBits gets no bias
	Style         spec.Style         // "": the one that suits the target
	Activations   spec.Activations
	ReduceRange   bool // of dynamic and static weights
	Static        *StaticOptions
	Target        *target.Engine
	Rule          spec.ScaleRule
	Algorithm     spec.Algorithm
	ScaleType     spec.ScaleType // of integer formats; "": that of the weight
	Range         spec.Range
	Memory        int64        // what the Hessian of a weight may take, in algorithm best
	Calibrated    bool         // algorithm best uses the inputs of layers
	Observed      *graph.Graph // the one in which layers are looked for: without functions, where that can be
	Precision     *rules.Precision
	Importance    *rules.Importance
	Names         *rules.Names // names of weights in Importance
	Known         *Known       // of plans that select the same tensors; nil: nothing is
}

// Exceptions are weights that are not quantized as the options say, with the reasons.
type Exceptions struct {
	KeepFloat     map[*graph.Value]string // they stay in float
	ForceDQ       map[*graph.Value]string // they get the style dq
	Huge          map[*graph.Value]bool   // MatMulNBits must not compute with them in 8 bits
	SmallerAsInt8 map[*graph.Value]bool   // int8 takes fewer bytes than the format of the options
	MSE           map[*graph.Value]string // they get the algorithm mse though there is calibration data
	Scales        map[*graph.Value]Scales // they get scales of another type
}

// Scales are the scales of a weight whose own do not fit into the type of the options.
type Scales struct {
	Type spec.ScaleType
	Why  string
}

// Unselected begins the reason of weights that Options.Ops leaves out.
const Unselected = "operator not selected: "

// FormatFloat is the reason of weights that the settings keep in float.
const FormatFloat = "its format is float"

// Decision says what becomes of one float tensor.
type Decision struct {
	Value *graph.Value
	DType dtype.DType
	Shape []int64
	Bytes int64
	Reach reach.Reach // the operators that read it, if it is selected

	Selected bool           // by the options
	Override *spec.Override // its entry in Options.Precision; never nil

	Quantize bool
	Reason   string  // why it is not quantized
	Choice   *Choice // how it is quantized; never nil
	Note     string  // how it differs from the request
	Fallback string  // the first part of Note, if its format differs and nobody asked for that

	Layers  []Layer // those by which its codes are calibrated, or nil
	Lacking int64   // the memory with which they could be calibrated, or 0
	Unseen  bool    // a product cannot be observed

	Importance []float32 // weight of each index of the reduction axis, for the blockwise formats; nil: all equal

	unknown string // why the reduction axis is unknown, or ""
}

func (d *Decision) tensor() Tensor { return Tensor{d.Value, d.DType, d.Shape, d.Reach} }

// Tensors without an entry, or that are not selected, share these: a model may have very many.
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
	Block         int // elements per block; spec.PerChannel: the whole axis
	Style         spec.Style
	NBits         NBits              // only in style nbits
	Dynamic       Dynamic            // only in style dynamic
	ReduceRange   bool               // codes use a bit less; only in style dynamic
	Static        *static.Tensor     // only in style static
	AccuracyLevel spec.AccuracyLevel // of MatMulNBits, only in style nbits
	NoFoldBias    bool               // MatMulNBits gets no bias, only in style nbits
	Operand       reach.Operand      // blocks run along its axis
	Apart         bool               // codes get a third axis, which keeps ONNX Runtime from fusing or turning them
	StoredZeros   bool               // zero points of 0 are stored, with which ONNX Runtime fuses codes
}

// All decides what becomes of each float tensor of the model, and of its activations: the plan is
// nil if these are not quantized with known ranges.
func All(x *graph.Graph, opts Options, except Exceptions) ([]*Decision, *static.Plan, error) {
	all := undecided(x)
	known := opts.known(x, all)
	for _, d := range all {
		d.Override = overrideOf(opts.Precision, d.Value)
		if opts.Static != nil { // else one after the other, below
			d.Reach = reach.Of(x, d.Value, d.Shape)
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
	if s.activations, err = findStatic(x, all, opts, s.trained, except.KeepFloat); err != nil {
		return nil, nil, err
	}
	for _, d := range all {
		if known && d.Reason != "" {
			continue
		}
		if opts.Static == nil {
			d.Reach = reach.Of(x, d.Value, d.Shape)
		}
		if err := s.settle(d); err != nil {
			return nil, nil, err
		}
		if !d.Selected {
			d.Reach = reach.Reach{}
		}
	}
	opts.remember(x, all)
	pairLSTMs(x, all)
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

// settling is what a decision depends on.
type settling struct {
	x           *graph.Graph
	opts        Options
	except      Exceptions
	trained     map[string]bool
	parts       map[*graph.Value]string
	shapes      *graph.Shapes
	activations *static.Plan
}

// settle decides what becomes of a tensor.
func (s *settling) settle(d *Decision) error {
	opts, except := s.opts, s.except
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
	if err := d.selectBy(opts, except.SmallerAsInt8[d.Value]); err != nil {
		return fmt.Errorf("tensor %s: %w", msg.Quote(d.Value.Path), err)
	}
	if d.Reason != "" {
		return nil
	}
	d.Selected = true
	if d.Reason = d.obstacle(s.trained, except.KeepFloat); d.Reason == "" {
		d.Reason = d.fit(s.x)
	}
	d.settleStyle(s.x, s.shapes, opts, except.ForceDQ[d.Value])
	d.settleApart(s.x)
	d.settleScales(except.Scales[d.Value])
	d.settleLevel(except.Huge[d.Value])
	if d.Reason != "" && opts.Strict {
		return fmt.Errorf("%w: %s: %s", ErrStrict, msg.Quote(d.Value.Path), d.Reason)
	}
	d.Quantize = d.Reason == ""
	d.settleSecondOrder(s.x, opts, except.MSE[d.Value])
	d.settleEstimate(s.x, opts)
	return nil
}

// overrideOf returns the entry of a value in a precision_info; for one without, that of a tensor
// from which it was made.
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

// elsewhere lists the float tensors that are not values of the graph: those in
// training_info and in attributes. Scalars are left out.
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

// settleStyle chooses the style of the weight and, for nbits and dynamic, its form. forceDQ is
// a reason against these, or "".
func (d *Decision) settleStyle(x *graph.Graph, s *graph.Shapes, opts Options, forceDQ string) {
	c, style := d.Choice, opts.Style
	c.Style = spec.DQ
	if d.Reason == "" {
		d.settleDynamic(x, opts, forceDQ)
	}
	switch family := c.Format.Traits().Family; {
	case d.Reason != "" || c.Style == spec.StyleDynamic:
	case style == spec.NBits || style == "" && d.direct(x, s):
		f, why := FindNBits(x, d.tensor(), *c)
		if forceDQ != "" {
			why = forceDQ
		}
		if c.StoredZeros = why != "" && style == "" && d.fusedWithZeros(x, s); c.StoredZeros {
			d.remark("zero points of 0 are stored: with them it does")
			return
		}
		if why != "" {
			d.remark("no MatMulNBits or GatherBlockQuantized: " + why)
			return
		}
		c.Style, c.NBits = spec.NBits, f
	case style == spec.QDQ && d.DType == dtype.Float64:
		d.Reason = "QuantizeLinear does not take float64"
	case style == spec.QDQ && family != spec.Integer && family != spec.Float8:
		d.Reason = fmt.Sprintf("QuantizeLinear does not make %s", c.Format)
	case style == spec.QDQ && len(d.Value.Returned()) > 0:
		d.Reason = "its function returns it"
	case style == spec.QDQ && d.Value.Output:
		d.Reason = "its graph returns it"
	case style == spec.QDQ:
		c.Style = spec.QDQ
	}
}

// settleApart keeps ONNX Runtime from fusing a weight with which it would compute wrongly, or fail. That a
// Cast, a function, an If or a second reader lies between the weight and its product does not hold it
// back everywhere, so all such weights of products are kept apart.
func (d *Decision) settleApart(x *graph.Graph) {
	c := d.Choice
	if d.Reason != "" || c.Style == spec.NBits || !c.Format.Scaled() || len(c.Operand.View) != 2 || !d.multiplied() {
		return
	}
	switch columns := c.Operand.View[1-c.Operand.Axis]; {
	case c.Operand.Axis == 0 && target.SpoiltIfFused(c.Format.Bits(), columns):
		c.Apart = true
		d.remark(fmt.Sprintf("codes with a third axis: where ONNX Runtime fuses 2 bits, it computes wrongly with %d columns, which is no multiple of 4", columns))
	case c.Operand.Axis == 1 && target.Refused(c.Format.Bits(), c.ZeroPoint || !c.Format.Signed(), c.Block):
		c.Apart = true
		d.remark("codes with a third axis: ONNX Runtime refuses a Transpose of others with 2 bits and a zero point per channel")
	case (c.Target.NBits || c.Target.Target == spec.Portable) && target.ZeroedIfFused(d.DType, x.Nested(d.Value)):
		c.Apart = true
		d.remark("codes with a third axis: where ONNX Runtime fuses float16 in a body of If, Loop or Scan, it computes zeros")
	}
}

// multiplied reports whether a MatMul or Gemm reads the weight.
func (d *Decision) multiplied() bool {
	return slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		return l.Node.GetOpType() == "MatMul" || l.Node.GetOpType() == "Gemm"
	})
}

// settleLevel chooses the accuracy_level where the default one computes wrongly. huge: the weight
// has elements too large for it.
func (d *Decision) settleLevel(huge bool) {
	c := d.Choice
	switch {
	case c.AccuracyLevel != spec.AccuracyDefault:
	case huge:
		c.AccuracyLevel = spec.AccuracyFloat32
	case c.Style == spec.NBits && SharesHalf(d.DType, d.Reach):
		c.AccuracyLevel = spec.AccuracyFloat32
		d.remark("accuracy_level 1: with 4, ONNX Runtime computes wrongly where nodes share float16 scales")
	}
}

// SharesHalf reports whether several products read a weight of float16: ONNX Runtime 1.31 prepares
// the scales that such MatMulNBits share for one of them, if accuracy_level is 4.
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
