package intops

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// float returns the name of the float value that computed or stored codes stand for. It adds the
// nodes that make it. It is not ok if the codes are decoded otherwise than they were made.
func (r *rewriting) float(q quantity) (name string, ok bool) {
	if q.codes == nil || q.scale == nil {
		return "", false
	}
	if f, known := r.floats[q.codes]; known {
		return f.name, f.name != "" && r.equalScales(f.scale, q.scale) && r.equalScales(f.zero, q.zero)
	}
	if r.depth++; r.depth > deepest {
		return "", false
	}
	defer func() { r.depth-- }()
	n := q.codes.Node
	switch {
	case constant(q.codes):
		name = r.decode(q, 1)
	case n == nil || q.codes.Body != nil:
	case n.GetOpType() == "DynamicQuantizeLinear" || quantizers[graph.Operator(n)]:
		if own := r.quantityOf(q.codes); r.equalScales(own.scale, q.scale) && r.equalScales(own.zero, q.zero) && !constant(r.x.Source(n, 0)) {
			name = r.quantized(n, q)
		}
	case calculations[graph.Operator(n)].op != "":
		c := calculations[graph.Operator(n)]
		if own := r.quantityOf(q.codes); r.equalScales(own.scale, q.scale) && r.equalScales(own.zero, q.zero) {
			name = r.calculation(n, c)
		}
	case isMover(n):
		return r.move(n, q)
	}
	r.floats[q.codes] = decoded{q, name}
	return name, name != ""
}

// constant reports whether a value is stored, so that no caller replaces it.
func constant(v *graph.Value) bool {
	return v != nil && v.Tensor != nil && (!v.Input || v.MustBeInput)
}

// quantityOf finds scale and zero point of computed codes. They are nil if unknown.
func (r *rewriting) quantityOf(v *graph.Value) quantity {
	q := quantity{codes: v}
	if v = r.origin(v); v == nil || v.Node == nil || v.Tensor != nil {
		return q
	}
	n, op := v.Node, graph.Operator(v.Node)
	switch c := calculations[op]; {
	case op == "DynamicQuantizeLinear" && v == r.x.Outputs(n)[0] && len(r.x.Outputs(n)) == 3:
		q.scale, q.zero = r.x.Outputs(n)[1], r.x.Outputs(n)[2]
	case quantizers[op]:
		q.scale, q.zero = r.x.Source(n, 1), r.x.Source(n, 2)
	case c.op != "":
		q.scale, q.zero = r.x.Source(n, c.result[0]), r.x.Source(n, c.result[1])
	}
	return q
}

// origin returns the codes that movers pass on as v; nil if an input is omitted.
func (r *rewriting) origin(v *graph.Value) *graph.Value {
	for range deepest {
		if v == nil || v.Node == nil || v.Tensor != nil || !isMover(v.Node) {
			break
		}
		v = r.x.Source(v.Node, 0)
	}
	return v
}

// codeType returns the type of codes that are decoded without a zero point; 0 if it is unknown.
func (r *rewriting) codeType(v *graph.Value) dtype.DType {
	for range deepest {
		switch v = r.origin(v); {
		case v == nil:
			return 0
		case v.Tensor != nil:
			return dtype.DType(v.Tensor.GetDataType())
		case v.Node == nil:
			return 0
		}
		n, op := v.Node, graph.Operator(v.Node)
		q, c := r.quantityOf(v), calculations[op].completed(n)
		switch {
		case q.zero != nil:
			return dtype.DType(q.zero.Tensor.GetDataType())
		case quantizers[op]:
			return cmp.Or(dtype.DType(graph.IntAttribute(n, "output_dtype")), dtype.Uint8)
		case len(c.operands) == 0:
			return 0
		}
		v = r.x.Source(n, c.operands[0][0]) // the result has the type of the operands
	}
	return 0
}

// decode adds a DequantizeLinear of stored codes, and returns the name of its output. Its scales,
// if there are several, belong to the indices of an axis.
func (r *rewriting) decode(q quantity, axis int) string {
	if !constant(q.scale) {
		return ""
	}
	if filterScales(q) {
		return r.decodeFilters(q)
	}
	inputs := []string{q.codes.Name, q.scale.Name}
	attrs := []*onnxpb.AttributeProto{form.IntAttr("axis", int64(axis))}
	if rows := stackedColumns(q); rows > 0 {
		attrs = []*onnxpb.AttributeProto{form.IntAttr("axis", -2), form.IntAttr("block_size", rows)}
	}
	switch scales, zeros := elements(q.scale), elements(q.zero); {
	case q.zero == nil, scales != zeros && r.zeros(q.zero):
	case scales != zeros || !constant(q.zero):
		return ""
	default:
		inputs = append(inputs, q.zero.Name)
	}
	name := r.copy.Names.Fresh(plain(q.codes.Name))
	r.add(q.codes.Graph, &onnxpb.NodeProto{
		OpType: new("DequantizeLinear"), Name: new(r.copy.Names.Fresh(name + "_DequantizeLinear")), Input: inputs, Output: []string{name},
		Attribute: attrs,
	})
	return name
}

// stackedColumns returns the number of rows of the matrices of a stack [..., K, N] whose columns have scales
// each, [..., 1, N]; 0 for other scales.
func stackedColumns(q quantity) int64 {
	codes, scale := q.codes.Tensor.GetDims(), q.scale.Tensor.GetDims()
	n := len(codes)
	if n < 3 || len(scale) != n || scale[n-2] != 1 || elements(q.scale) == 1 || scale[n-1] != codes[n-1] || !slices.Equal(scale[:n-2], codes[:n-2]) {
		return 0
	}
	return codes[n-2]
}

// filterScales reports whether a convolution's codes [M, ...] have scales [M, 1, 1], as a Mul applies them to
// the channels of its result.
func filterScales(q quantity) bool {
	codes, scale := q.codes.Tensor.GetDims(), q.scale.Tensor.GetDims()
	return len(codes) > 2 && len(scale) == len(codes)-1 && scale[0] == codes[0] && elements(q.scale) == codes[0] && (codes[0] > 1 || len(scale) > 1)
}

// decodeFilters adds a DequantizeLinear of a convolution's weight. Each channel gets the zero point of all.
func (r *rewriting) decodeFilters(q quantity) string {
	channels := q.codes.Tensor.GetDims()[0]
	b := form.NewBuilder(r.copy.Names)
	inputs := []string{q.codes.Name, b.Value(q.scale.Name, "Reshape", []string{q.scale.Name, b.Shape(q.codes.Name, []int64{channels})})}
	if !r.zeros(q.zero) {
		raw, ok := r.bytes(q.zero)
		if !ok || len(raw) != 1 {
			return ""
		}
		inputs = append(inputs, b.Constant(q.zero.Name, dtype.DType(q.zero.Tensor.GetDataType()), []int64{channels}, bytes.Repeat(raw, int(channels))))
	}
	name := b.Fresh(plain(q.codes.Name))
	b.Node(name, "DequantizeLinear", name, inputs, form.IntAttr("axis", 0))
	for _, n := range slices.Concat(b.ConstantNodes(), b.Nodes) {
		r.add(q.codes.Graph, n)
	}
	return name
}

// suffix matches what quantizers add to the name of a value for its codes.
var suffix = regexp.MustCompile(`(_QuantizeInput)?_(quantized|quant|QuantizeLinear_Output)$`)

func plain(name string) string { return suffix.ReplaceAllString(name, "") }

func elements(v *graph.Value) int64 {
	if v == nil || v.Tensor == nil {
		return -1
	}
	n, _ := dtype.Elements(v.Tensor.GetDims())
	return n
}

// weight decodes the weight of an operator that reads its codes. Scales belong to the indices
// of axis, from the end if negative.
func (r *rewriting) weight(n *onnxpb.NodeProto, codes, scale, zero, axis int) (name string, ok bool) {
	return r.stored(n, quantity{r.x.Source(n, codes), r.x.Source(n, scale), r.x.Source(n, zero)}, axis)
}

func (r *rewriting) stored(n *onnxpb.NodeProto, q quantity, axis int) (name string, ok bool) {
	if !constant(q.codes) || q.scale == nil || r.x.Home(n).Graph == nil || q.codes.Body != nil {
		return "", false
	}
	r.forms[q.codes.Name] = n.GetOpType()
	if f, known := r.floats[q.codes]; known {
		return f.name, f.name != "" && r.equalScales(f.scale, q.scale) && r.equalScales(f.zero, q.zero)
	}
	if axis < 0 {
		axis += len(q.codes.Tensor.Dims)
	}
	name = r.decode(q, max(axis, 0))
	r.floats[q.codes] = decoded{q, name}
	return name, name != ""
}

// columns decodes a weight [n, k, m] with a scale for each [n, m].
func (r *rewriting) columns(n *onnxpb.NodeProto, codes, scale, zero int) (name string, ok bool) {
	q := quantity{r.x.Source(n, codes), r.x.Source(n, scale), r.x.Source(n, zero)}
	dims := q.codes.Tensor.Dims
	if !slices.Equal(q.scale.Tensor.Dims, []int64{dims[0], dims[2]}) || !constant(q.zero) || elements(q.zero) != elements(q.scale) {
		return "", false
	}
	r.forms[q.codes.Name] = n.GetOpType()
	b := form.NewBuilder(r.copy.Names)
	shape := b.Shape(q.codes.Name, []int64{dims[0], 1, dims[2]})
	inputs := []string{q.codes.Name}
	for _, v := range []*graph.Value{q.scale, q.zero} {
		inputs = append(inputs, b.Value(v.Name, "Reshape", []string{v.Name, shape}))
	}
	name = b.Fresh(plain(q.codes.Name))
	b.Node(name, "DequantizeLinear", name, inputs, form.IntAttr("axis", 1), form.IntAttr("block_size", dims[1]))
	for _, n := range slices.Concat(b.ConstantNodes(), b.Nodes) {
		r.add(q.codes.Graph, n)
	}
	return name, true
}

// operand decodes an operand of a node, computed or stored.
func (r *rewriting) operand(n *onnxpb.NodeProto, at [3]int) (name string, ok bool) {
	return r.factor(n, quantity{r.x.Source(n, at[0]), r.x.Source(n, at[1]), r.x.Source(n, at[2])})
}

func (r *rewriting) factor(n *onnxpb.NodeProto, q quantity) (name string, ok bool) {
	if !constant(q.codes) {
		return r.float(q)
	}
	axis := -1 // of a matrix product
	if op := n.GetOpType(); op == "QLinearConv" || op == "ConvInteger" || op == "QGemm" && graph.IntAttribute(n, "transB") != 0 {
		axis = 0
	}
	return r.stored(n, q, axis)
}

// output returns a name for the float value of computed codes: the output of the DequantizeLinear that
// decodes them or, without one, a new name.
func (r *rewriting) output(q quantity) string {
	if n := r.wanted[q.codes]; n != nil && !r.gone[r.x.Number(n)] {
		if d := r.fromDecoder(n); r.equalScales(d.scale, q.scale) && r.equalScales(d.zero, q.zero) {
			r.drop(n)
			return n.Output[0]
		}
	}
	return r.copy.Names.Fresh(plain(q.codes.Name))
}

// move makes a node that passes on codes pass on floats.
func (r *rewriting) move(n *onnxpb.NodeProto, q quantity) (name string, ok bool) {
	inputs := slices.Clone(n.Input)
	for _, i := range codeInputs(n) {
		if ok = graph.HasInput(n, i); ok {
			inputs[i], ok = r.float(quantity{r.x.Source(n, i), q.scale, q.zero})
		}
		if !ok {
			r.floats[q.codes] = decoded{q, ""}
			return "", false
		}
	}
	var outputs []string
	for i, v := range r.x.Outputs(n) {
		switch {
		case v == nil, i > 0 && n.GetOpType() != "Split":
			outputs = append(outputs, "")
		default:
			made := quantity{v, q.scale, q.zero}
			outputs = append(outputs, r.output(made))
			r.floats[v] = decoded{made, outputs[i]}
		}
	}
	made := proto.Clone(n).(*onnxpb.NodeProto)
	made.Name = new(suffix.ReplaceAllString(n.GetName(), ""))
	made.Input, made.Output = inputs, outputs
	r.add(r.x.Home(n).Graph, made)
	return r.floats[q.codes].name, r.floats[q.codes].name != ""
}

// quantized returns the name of the input of a QuantizeLinear, clipped to the range of the codes.
func (r *rewriting) quantized(n *onnxpb.NodeProto, q quantity) string {
	name := input(n, 0)
	if name == "" || n.GetOpType() == "DynamicQuantizeLinear" { // its range comes from the values, so it clips nothing
		return name
	}
	span, known := r.span(q)
	if known {
		r.steps[name] = span.Step
	}
	if span.cuts(r.sourceRange(r.x.Source(n, 0))) {
		return r.limited(r.x.Home(n).Graph, name, q)
	}
	return name
}

// calculation makes an operator on codes one on floats, and returns the name of its output.
func (r *rewriting) calculation(n *onnxpb.NodeProto, c calculation) string {
	c = c.completed(n)
	out := r.x.Made(n)
	if out == nil || graph.IntAttribute(n, "channels_last") != 0 {
		return ""
	}
	var inputs []string
	if c.first > 0 {
		inputs = append(inputs, input(n, c.first-1))
	}
	for _, at := range c.operands {
		name, ok := r.operand(n, at)
		if !ok {
			return ""
		}
		inputs = append(inputs, name)
	}
	if c.bias > 0 && graph.HasInput(n, c.bias) {
		name, ok := r.bias(n, c)
		if !ok {
			return ""
		}
		inputs = append(inputs, name)
	}
	if !graph.HasInput(n, c.result[0]) { // a QGemm with a float result
		r.replaceBy(n, c.op, "", inputs, n.Output, n.Attribute...)
		return out.Name
	}
	q := quantity{out, r.x.Source(n, c.result[0]), r.x.Source(n, c.result[1])}
	span, known := r.span(q)
	var name string
	if span.cuts(r.resultRange(n, c)) {
		linear := r.copy.Names.Fresh(plain(out.Name))
		r.replaceBy(n, c.op, "", inputs, []string{linear}, n.Attribute...)
		name = r.limited(r.x.Home(n).Graph, linear, q)
	} else {
		name = r.output(q)
		r.replaceBy(n, c.op, "", inputs, []string{name}, n.Attribute...)
	}
	if known {
		r.ranges[name], r.steps[name] = span, span.Step
	}
	return name
}

// bias decodes the bias of a product, whose scale is the product of the scales of the factors.
func (r *rewriting) bias(n *onnxpb.NodeProto, c calculation) (name string, ok bool) {
	codes, x, w := r.x.Source(n, c.bias), r.x.Source(n, c.operands[0][1]), r.x.Source(n, c.operands[1][1])
	if !constant(codes) || !constant(x) || !constant(w) {
		return "", false
	}
	r.forms[codes.Name] = n.GetOpType()
	b := form.NewBuilder(r.copy.Names)
	scale := b.Value(plain(codes.Name)+"_scale", "Mul", []string{x.Name, w.Name})
	name = b.Fresh(plain(codes.Name))
	b.Node(name, "DequantizeLinear", name, []string{codes.Name, scale}, form.IntAttr("axis", 0))
	for _, made := range b.Nodes {
		r.add(codes.Graph, made)
	}
	return name, true
}

// mostCompared bounds the scales and zero points that are compared by content.
const mostCompared = 1 << 20

// bytes reads a small stored tensor.
func (r *rewriting) bytes(v *graph.Value) ([]byte, bool) {
	if !constant(v) || graph.SizeOf(v.Tensor) > mostCompared {
		return nil, false
	}
	p, err := r.x.File.Payload(v.Tensor)
	if err != nil || p == nil {
		return nil, false
	}
	raw := make([]byte, p.Size())
	return raw, buffer.ReadFull(p, raw, 0) == nil
}

// zeros reports whether a stored tensor, or one that is omitted, holds only zeros.
func (r *rewriting) zeros(v *graph.Value) bool {
	if v == nil {
		return true
	}
	raw, ok := r.bytes(v)
	return ok && len(bytes.Trim(raw, "\x00")) == 0
}

// equalScales reports whether two scales, or zero points, are equal.
func (r *rewriting) equalScales(v, w *graph.Value) bool {
	switch {
	case v == w:
		return true
	case v == nil || w == nil:
		return r.zeros(v) && r.zeros(w)
	case !constant(v) || !constant(w) || v.Tensor.GetDataType() != w.Tensor.GetDataType() || elements(v) != elements(w):
		return false
	}
	a, ok := r.bytes(v)
	b, known := r.bytes(w)
	return ok && known && bytes.Equal(a, b)
}
