package onnxq

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"onnxquant/calib"
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/onnxq/recognize"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// Reasons that only the weights themselves can give.
const (
	reasonBroken = "holds NaN or infinity"
	reasonBeyond = "holds NaN, infinity or values that no float16 scale reaches"
	reasonHuge   = "holds NaN, infinity or values beyond float32"
	reasonLost   = "its values are too small for any scale"
)

// decision is what becomes of one float tensor.
type decision struct {
	value *graph.Value
	dtype dtype.DType
	shape []int64
	bytes int64
	reach reach.Reach

	quantize bool
	reason   string // why not
	unknown  string // why it is not known how a selected operator sums over it
	choice   choice // how
	note     string // why not as was asked

	importance []float32 // of what blocks run along, in the blockwise formats; nil: all count the same
}

// choice says how a weight is quantized.
type choice struct {
	format        spec.Format
	target        spec.Target
	rule          spec.ScaleRule
	narrow        calib.Method // of ranges, in the integer formats
	zeroPoint     bool
	block         int // PerChannel: one for the whole axis
	style         spec.Style
	nbits         nbits // meaningful in that style
	reach.Operand       // along its axis blocks run
}

// discover decides for each float tensor of the model whether it is quantized.
func (m *Model) discover(opts Options, but exceptions) ([]*decision, error) {
	x := m.index
	var all []*decision
	for _, v := range x.Values {
		if typ := dtype.DType(v.Tensor.GetDataType()); typ.Float() {
			all = append(all, &decision{value: v, dtype: typ, shape: v.Tensor.GetDims(), bytes: graph.SizeOf(v.Tensor)})
		}
	}
	for _, v := range x.Unusual {
		all = append(all, &decision{value: v, dtype: v.Unusual.DType, shape: v.Unusual.Shape, bytes: v.Unusual.Bytes})
	}
	trained, done := graph.TrainedNames(m.file.Proto), recognize.Parts(m.index)
	for _, d := range all {
		d.reach = reach.Of(x, d.value, d.shape)
		if d.reason = done[d.value]; d.reason != "" {
			continue
		}
		if err := d.selectBy(opts); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", msg.Quote(d.value.Path), err)
		}
		if d.reason != "" {
			continue
		}
		if d.reason = d.obstacle(trained, but.left); d.reason == "" {
			d.reason = d.fit(x, opts)
		}
		d.settleStyle(x, opts.Style, but.plain[d.value.Tensor])
		if d.reason != "" && opts.Strict {
			return nil, fmt.Errorf("%w: %s: %s", ErrStrict, msg.Quote(d.value.Path), d.reason)
		}
		d.quantize = d.reason == ""
	}
	return append(all, m.elsewhere()...), nil
}

// elsewhere lists the float tensors that are no values of the model: those of
// training graphs, and those in attributes. Single numbers are left out.
func (m *Model) elsewhere() (all []*decision) {
	listed := map[*onnxpb.TensorProto]bool{}
	for _, v := range m.index.Values {
		listed[v.Tensor] = true
	}
	for _, v := range m.index.Unusual {
		listed[v.Unusual.Sparse.GetValues()] = true
	}
	for where, t := range modelfile.Tensors(m.file.Proto) {
		typ := dtype.DType(t.GetDataType())
		if n, _ := dtype.Elements(t.GetDims()); listed[t] || !typ.Float() || n < 2 {
			continue
		}
		reason := "in an attribute"
		if strings.HasPrefix(where, modelfile.InTraining) {
			reason = "in training_info"
		}
		v := &graph.Value{Name: t.GetName(), Path: where, Tensor: t}
		all = append(all, &decision{value: v, dtype: typ, shape: t.GetDims(), bytes: graph.SizeOf(t), reason: reason})
	}
	return all
}

// settleStyle finds the form of the weight in a style. There may be a reason not
// to use what ONNX Runtime's own operators read.
func (d *decision) settleStyle(x *graph.Graph, style spec.Style, not string) {
	c := &d.choice
	c.style = spec.DQ
	switch family := c.format.Traits().Family; {
	case d.reason != "":
	case style == spec.NBits || style == "" && d.unfused(x) != "":
		if style == "" {
			d.remark(d.unfused(x))
		}
		f, why := d.nbitsForm(x)
		if why = cmp.Or(not, why); why != "" {
			d.remark("no MatMulNBits or GatherBlockQuantized: " + why)
			return
		}
		c.style, c.nbits = spec.NBits, f
	case style == spec.QDQ && d.dtype == dtype.Float64:
		d.reason = "QuantizeLinear does not take float64"
	case style == spec.QDQ && family != spec.Integer && family != spec.Float8:
		d.reason = fmt.Sprintf("QuantizeLinear does not make %s", c.format)
	case style == spec.QDQ && len(d.value.Returned) > 0:
		d.reason = "its function returns it"
	case style == spec.QDQ:
		c.style = spec.QDQ
	}
}

// remark adds to the note.
func (d *decision) remark(text string) {
	if d.note != "" {
		d.note += "; "
	}
	d.note += text
}

// selectBy fills in the choice if the options select the tensor, or else the
// reason why they do not.
func (d *decision) selectBy(opts Options) error {
	n, _ := dtype.Elements(d.shape)
	o, reason := d.readers(opts)
	switch {
	case reason != "":
		d.reason = reason
	case n == 0:
		d.reason = "empty"
	case n < opts.MinElements:
		d.reason = fmt.Sprintf("fewer than %d elements", opts.MinElements)
	case len(opts.Include) > 0 && !d.matches(opts.Include):
		d.reason = "not included"
	case d.matches(opts.Exclude):
		d.reason = "excluded"
	default:
		d.choice.Operand = o
		return d.choose(opts)
	}
	return nil
}

// readers finds how the first selected operator sums over the tensor that takes it
// as its weight, or says why there is none.
func (d *decision) readers(opts Options) (o reach.Operand, reason string) {
	var unselected, other, done []string
	for _, l := range d.reach.Leaves {
		o, weight, why := l.Operand(d.shape)
		switch {
		case weight && !slices.Contains(opts.Ops, l.Node.GetOpType()):
			unselected = append(unselected, graph.Operator(l.Node))
		case weight && why == "":
			return o, ""
		case weight:
			d.unknown = fmt.Sprintf("%s: %s", l, why)
		default:
			other = append(other, l.String()+remark(why))
			if role := recognize.RoleOf(l); role != "" {
				done = append(done, role)
			}
		}
	}
	switch {
	case d.unknown != "":
		return reach.Operand{0, d.shape}, ""
	case len(unselected) > 0:
		return o, "operator not selected: " + msg.List(unselected)
	case len(other) > 0 && len(done) == len(other):
		return o, recognize.Already + msg.List(done)
	case len(other) > 0:
		return o, "read by " + msg.List(other)
	case d.value.Output || d.reach.Output:
		return o, "graph output"
	}
	return o, "nothing reads it"
}

func remark(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// obstacle says why a selected tensor cannot be quantized, if so.
func (d *decision) obstacle(trained map[string]bool, unfit map[*onnxpb.TensorProto]string) string {
	var other []string
	for _, l := range d.reach.Leaves {
		if _, weight, _ := l.Operand(d.shape); !weight {
			other = append(other, l.String())
		}
	}
	switch {
	case d.value.Unusual != nil:
		return "stored as " + d.value.Unusual.Form
	case d.value.Input && !d.value.MustBeInput:
		return "graph input: callers may replace it"
	case d.value.Output || d.reach.Output:
		return "graph output"
	case trained[d.value.Name]:
		return "bound by training_info"
	case len(other) > 0:
		return "also read by " + msg.List(other)
	case d.unknown != "":
		return d.unknown
	}
	return unfit[d.value.Tensor]
}

// matches reports whether one of the patterns means the tensor or a node that
// reads it.
func (d *decision) matches(patterns []string) bool {
	for _, p := range patterns {
		if rules.MatchName(p, d.value.Name) || d.value.Path != d.value.Name && rules.MatchName(p, d.value.Path) {
			return true
		}
		for _, l := range d.reach.Leaves {
			if name := l.Node.GetName(); name != "" && rules.MatchName(p, name) {
				return true
			}
		}
	}
	return false
}

// choose settles format, block and axis from the options and the overrides.
func (d *decision) choose(opts Options) error {
	c := &d.choice
	c.narrow, _ = spec.ParseRange(opts.Range)
	c.target, c.rule, c.block, c.zeroPoint = opts.Target, opts.ScaleRule, opts.Block, opts.ZeroPoint
	bits, format := opts.Bits, opts.Format
	if o, ok := d.override(opts.Precision); ok {
		if o.Format != nil || o.Bits != nil {
			bits, format = 0, "" // one of them does away with the other
		}
		if o.Format != nil {
			format = *o.Format
			if format.Traits().Block != 0 {
				c.block = 0 // the option is for other formats
			}
		}
		spec.SetIf(&bits, o.Bits)
		spec.SetIf(&c.block, o.Block)
		spec.SetIf(&c.zeroPoint, o.ZeroPoint)
		if o.Axis != nil {
			c.Axis, d.unknown = *o.Axis, ""
			c.View = d.shape
			if c.Axis < 0 {
				c.Axis += len(d.shape)
			}
			if c.Axis < 0 || c.Axis >= len(d.shape) {
				return fmt.Errorf("precision_info: axis %d, but its rank is %d", *o.Axis, len(d.shape))
			}
		}
	}
	if format == spec.Float {
		c.format, d.reason = spec.Float, "its format is float"
		return nil
	}
	var err error
	if c.format, c.block, err = spec.Resolve(bits, format, c.block, c.zeroPoint); err != nil || c.format.Encoding() == nil {
		return err
	}
	if name, ok := opts.Names.For(d.value.Path); ok && d.unknown == "" {
		d.importance, err = opts.Importance.Of(c.View[c.Axis], 1, name, d.value.Path)
	}
	return err
}

// override finds what a precision_info says of the tensor.
func (d *decision) override(p *rules.Precision) (spec.Override, bool) {
	return p.For(d.value.Path, d.value.Name)
}
