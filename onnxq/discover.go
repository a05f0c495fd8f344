package onnxq

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"onnxquant/calib"
	"onnxquant/formats/dtype"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
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
	value *value
	dtype dtype.DType
	shape []int64
	bytes int64
	reach reach

	quantize bool
	reason   string // why not
	unknown  string // why it is not known how a selected operator sums over it
	choice   choice // how
	note     string // why not as was asked

	importance []float32 // of what blocks run along, in the blockwise formats; nil: all count the same
}

// choice says how a weight is quantized.
type choice struct {
	format    Format
	target    Target
	rule      ScaleRule
	narrow    calib.Method // of ranges, in the integer formats
	zeroPoint bool
	block     int // PerChannel: one for the whole axis
	style     Style
	nbits     nbits // meaningful in that style
	operand         // along its axis blocks run
}

// discover decides for each float tensor of the model whether it is quantized.
func (m *Model) discover(opts Options, but exceptions) ([]*decision, error) {
	x := m.index
	var all []*decision
	for _, v := range x.values {
		if typ := dtype.DType(v.tensor.GetDataType()); typ.Float() {
			all = append(all, &decision{value: v, dtype: typ, shape: v.tensor.GetDims(), bytes: sizeOf(v.tensor)})
		}
	}
	for _, v := range x.unusual {
		all = append(all, &decision{value: v, dtype: v.unusual.dtype, shape: v.unusual.shape, bytes: v.unusual.bytes})
	}
	trained, done := trainedNames(m.file.Proto), quantizedParts(m.index)
	for _, d := range all {
		d.reach = reachOf(x, d.value, d.shape)
		if d.reason = done[d.value]; d.reason != "" {
			continue
		}
		if err := d.selectBy(opts); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", quote(d.value.path), err)
		}
		if d.reason != "" {
			continue
		}
		if d.reason = d.obstacle(trained, but.left); d.reason == "" {
			d.reason = d.fit(x, opts)
		}
		d.settleStyle(x, opts.Style, but.plain[d.value.tensor])
		if d.reason != "" && opts.Strict {
			return nil, fmt.Errorf("%w: %s: %s", ErrStrict, quote(d.value.path), d.reason)
		}
		d.quantize = d.reason == ""
	}
	return append(all, m.elsewhere()...), nil
}

// elsewhere lists the float tensors that are no values of the model: those of
// training graphs, and those in attributes. Single numbers are left out.
func (m *Model) elsewhere() (all []*decision) {
	listed := map[*onnxpb.TensorProto]bool{}
	for _, v := range m.index.values {
		listed[v.tensor] = true
	}
	for _, v := range m.index.unusual {
		listed[v.unusual.sparse.GetValues()] = true
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
		v := &value{name: t.GetName(), path: where, tensor: t}
		all = append(all, &decision{value: v, dtype: typ, shape: t.GetDims(), bytes: sizeOf(t), reason: reason})
	}
	return all
}

// settleStyle finds the form of the weight in a style. There may be a reason not
// to use what ONNX Runtime's own operators read.
func (d *decision) settleStyle(x *graphIndex, style Style, not string) {
	c := &d.choice
	c.style = DQ
	switch family := c.format.traits().family; {
	case d.reason != "":
	case style == NBits || style == "" && d.unfused(x) != "":
		if style == "" {
			d.remark(d.unfused(x))
		}
		f, why := d.nbitsForm(x)
		if why = cmp.Or(not, why); why != "" {
			d.remark("no MatMulNBits or GatherBlockQuantized: " + why)
			return
		}
		c.style, c.nbits = NBits, f
	case style == QDQ && d.dtype == dtype.Float64:
		d.reason = "QuantizeLinear does not take float64"
	case style == QDQ && family != integer && family != float8:
		d.reason = fmt.Sprintf("QuantizeLinear does not make %s", c.format)
	case style == QDQ && len(d.value.returned) > 0:
		d.reason = "its function returns it"
	case style == QDQ:
		c.style = QDQ
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
		d.choice.operand = o
		return d.choose(opts)
	}
	return nil
}

// readers finds how the first selected operator sums over the tensor that takes it
// as its weight, or says why there is none.
func (d *decision) readers(opts Options) (o operand, reason string) {
	var unselected, other, done []string
	for _, l := range d.reach.leaves {
		o, weight, why := l.operand(d.shape)
		switch {
		case weight && !slices.Contains(opts.Ops, l.node.GetOpType()):
			unselected = append(unselected, operatorName(l.node))
		case weight && why == "":
			return o, ""
		case weight:
			d.unknown = fmt.Sprintf("%s: %s", l, why)
		default:
			other = append(other, l.String()+remark(why))
			if role := roleOfLeaf(l); role != "" {
				done = append(done, role)
			}
		}
	}
	switch {
	case d.unknown != "":
		return operand{0, d.shape}, ""
	case len(unselected) > 0:
		return o, "operator not selected: " + list(unselected)
	case len(other) > 0 && len(done) == len(other):
		return o, already + list(done)
	case len(other) > 0:
		return o, "read by " + list(other)
	case d.value.output || d.reach.output:
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
	for _, l := range d.reach.leaves {
		if _, weight, _ := l.operand(d.shape); !weight {
			other = append(other, l.String())
		}
	}
	switch {
	case d.value.unusual != nil:
		return "stored as " + d.value.unusual.form
	case d.value.input && !d.value.mustBeInput:
		return "graph input: callers may replace it"
	case d.value.output || d.reach.output:
		return "graph output"
	case trained[d.value.name]:
		return "bound by training_info"
	case len(other) > 0:
		return "also read by " + list(other)
	case d.unknown != "":
		return d.unknown
	}
	return unfit[d.value.tensor]
}

// matches reports whether one of the patterns means the tensor or a node that
// reads it.
func (d *decision) matches(patterns []string) bool {
	for _, p := range patterns {
		if matchName(p, d.value.name) || d.value.path != d.value.name && matchName(p, d.value.path) {
			return true
		}
		for _, l := range d.reach.leaves {
			if name := l.node.GetName(); name != "" && matchName(p, name) {
				return true
			}
		}
	}
	return false
}

// choose settles format, block and axis from the options and the overrides.
func (d *decision) choose(opts Options) error {
	c := &d.choice
	c.narrow, _ = parseRange(opts.Range)
	c.target, c.rule, c.block, c.zeroPoint = opts.Target, opts.ScaleRule, opts.Block, opts.ZeroPoint
	bits, format := opts.Bits, opts.Format
	if o, ok := d.override(opts.Precision); ok {
		if o.Format != nil || o.Bits != nil {
			bits, format = 0, "" // one of them does away with the other
		}
		if o.Format != nil {
			format = *o.Format
			if format.traits().block != 0 {
				c.block = 0 // the option is for other formats
			}
		}
		set(&bits, o.Bits)
		set(&c.block, o.Block)
		set(&c.zeroPoint, o.ZeroPoint)
		if o.Axis != nil {
			c.axis, d.unknown = *o.Axis, ""
			c.view = d.shape
			if c.axis < 0 {
				c.axis += len(d.shape)
			}
			if c.axis < 0 || c.axis >= len(d.shape) {
				return fmt.Errorf("precision_info: axis %d, but its rank is %d", *o.Axis, len(d.shape))
			}
		}
	}
	if format == Float {
		c.format, d.reason = Float, "its format is float"
		return nil
	}
	var err error
	if c.format, c.block, err = resolveFormat(bits, format, c.block, c.zeroPoint); err != nil || c.format.encoding() == nil {
		return err
	}
	if name, ok := opts.Names.For(d.value.path); ok && d.unknown == "" {
		d.importance, err = opts.Importance.of(c.view[c.axis], 1, name, d.value.path)
	}
	return err
}

// override finds what a precision_info says of the tensor.
func (d *decision) override(p *Precision) (Override, bool) {
	return p.For(d.value.path, d.value.name)
}
