package form

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/ort8"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/packing"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// The operators that read a dynamic weight compute with its codes and with those of the activation:
//
//	x ── DynamicQuantizeLinear ── MatMulInteger(codes) ── Cast ── Mul(scale of x · scale) ── y
//
// This is the form that ONNX Runtime fuses to DynamicQuantizeMatMul.

// setDynamic sets the view of a dynamic weight. Each row or each column shares a scale.
func (w *Weight) setDynamic() {
	n := len(w.Shape)
	all, last := shapes.Count(w.Shape), w.Shape[n-1]
	channels, kind := w.Choice.Block == spec.PerChannel, w.Choice.Dynamic.Kind
	w.Outer, w.K, w.Inner = 1, all, 1
	switch {
	case kind == discover.Recurrent && !channels:
		w.Outer, w.K = w.Shape[0], all/w.Shape[0]
	case channels && w.filters():
		w.Outer, w.K = w.Shape[0], all/w.Shape[0]
	case channels && w.Choice.Dynamic.Transposed:
		w.Outer, w.K = all/last, last
	case channels && w.stacked():
		w.Outer, w.K, w.Inner = shapes.Count(w.Shape[:n-2]), w.Shape[n-2], last
	case channels:
		w.K, w.Inner = all/last, last
	}
	w.Block, w.Blocks = w.K, 1
	signed := w.Choice.Format.Signed()
	w.codec = ort8.Codec{Signed: signed, Reduced: w.Choice.ReduceRange, Middle: channels && w.filters() && !signed}
}

// filters reports whether a ConvInteger reads the codes. It takes one zero point for all channels. Scales
// of channels are applied to its result.
func (w *Weight) filters() bool { return w.Choice.Dynamic.Kind == discover.Convolution }

// dynamicShapes returns the shape of the codes, and the shape of scales and zero points.
func (w *Weight) dynamicShapes() (codes, scales []int64) {
	codes = slices.Clone(w.Shape)
	if n := len(codes); w.Choice.Dynamic.Transposed {
		codes[n-2], codes[n-1] = codes[n-1], codes[n-2]
	}
	channels := w.Choice.Block == spec.PerChannel
	switch {
	case w.Choice.Dynamic.Kind == discover.Recurrent && channels:
		return codes, w.Shape[:2]
	case w.Choice.Dynamic.Kind == discover.Recurrent:
		return codes, w.Shape[:1]
	case channels && w.filters():
		scales = slices.Repeat([]int64{1}, len(w.Shape)-1)
		scales[0] = w.Shape[0]
		return codes, scales
	case channels && w.stacked():
		scales = slices.Clone(w.Shape)
		scales[len(scales)-2] = 1
		return codes, scales
	case channels:
		return codes, codes[len(codes)-1:]
	}
	return codes, nil
}

// stacked reports whether a MatMulInteger multiplies by a stack of matrices. Its zero points have the rank
// of the stack: each column of each matrix has one.
func (w *Weight) stacked() bool { return w.Choice.Dynamic.Kind == discover.Product && len(w.Shape) > 2 }

// dynamicPlacements is Placements for a dynamic weight.
func (w *Weight) dynamicPlacements() (codes, scales, zeros packing.Placement) {
	codes, scales = packing.InOrder(w.Outer, w.K, w.Inner), packing.InOrder(w.Outer, 1, w.Inner)
	if n := len(w.Shape); w.Choice.Dynamic.Transposed {
		codes = packing.InOrder(shapes.Count(w.Shape[:n-2]), w.Shape[n-2], w.Shape[n-1])
		codes.Transposed = true
	}
	return codes, scales, scales
}

// buildDynamic adds the tensors of a dynamic weight.
func (w *Weight) buildDynamic(b *Builder) (t Tensors) {
	codes, scales := w.dynamicShapes()
	t.Codes = b.Tensor(w.Name+Suffix(w.codeType()), w.codeType(), codes)
	t.Scales = b.Tensor(w.Name+"_scale", dtype.Float32, scales)
	if w.Choice.Block != spec.PerChannel || !w.filters() {
		t.Zeros = b.Tensor(w.Name+"_zp", w.codeType(), scales)
	}
	return t
}

// quantity has the names of codes, their scale and their zero point.
type quantity struct{ codes, scale, zero string }

func (w *Weight) quantity(t Tensors, b *Builder) quantity {
	q := quantity{codes: t.Codes.GetName(), scale: t.Scales.GetName()}
	if t.Zeros != nil {
		q.zero = t.Zeros.GetName()
	} else {
		q.zero = b.Constant(w.Name+"_zp", w.codeType(), nil, []byte{w.codec.(ort8.Codec).Zero()})
	}
	return q
}

// dynamic is the part of Operators for dynamic weights.
type dynamic struct {
	activations map[place]quantity       // quantized at run time
	rows        map[*graph.Value]*lookup // output of a Gather → rows of codes
	order       []*lookup
	halves      map[int][2]quantity // number of an LSTM → those of its two weights that have come
	embeddings  map[int][5]quantity // number of an EmbedLayerNormalization → tables, scale and bias that have come
}

// place identifies a quantized activation: it is quantized once in each graph that needs it.
type place struct {
	v *graph.Value
	g *onnxpb.GraphProto
}

// lookup is a Gather of codes.
type lookup struct {
	quantity
	node  *onnxpb.NodeProto
	value *graph.Value // the output of the Gather in the float model
	reads int          // number of operators that take the codes
}

// Tables adds the tensors of a dynamic weight to b. Gathers of the weight then return codes. Tables
// must be called for all weights before Compute, because Compute lets the readers of looked-up rows
// take codes.
func (c *Operators) Tables(w *Weight, r reach.Reach, b *Builder) Tensors {
	t := w.buildDynamic(b)
	for _, l := range append(slices.Clone(r.Unread), r.Leaves...) {
		for _, n := range l.Via {
			c.copy.Drop(n)
		}
	}
	for _, l := range r.Unread {
		c.copy.Drop(l.Node)
	}
	for _, l := range r.Leaves {
		if l.Node.GetOpType() == "Gather" {
			c.lookUp(w.quantity(t, b), l.Node)
		}
	}
	return t
}

// Compute replaces the operators of leaves, except Gather, by operators that compute with codes.
func (c *Operators) Compute(w *Weight, t Tensors, r reach.Reach, b *Builder) {
	q := w.quantity(t, b)
	transposed := "" // name of the codes with the axes swapped
	for _, l := range r.Leaves {
		switch op := l.Node.GetOpType(); op {
		case "MatMul", "Gemm":
			of := q
			if swapped, _ := discover.Swapped(l); swapped != w.Choice.Dynamic.Transposed {
				if transposed == "" {
					transposed = b.Value(q.codes, "Transpose", []string{q.codes})
				}
				of.codes = transposed
			}
			c.integerProduct(of, l.Node)
		case "Conv":
			c.integerConvolution(w, q, l.Node, b)
		case "LSTM":
			c.lstm(q, l)
		case "Attention":
			c.attention(q, l.Node)
		case "EmbedLayerNormalization":
			c.embedding(q, l)
		}
	}
}

// activation returns the codes of a node's first input.
func (c *Operators) activation(n *onnxpb.NodeProto) quantity {
	v := c.copy.Original.Source(n, 0)
	if rows := c.dynamic.rows[v]; rows != nil {
		rows.reads++
		return rows.quantity
	}
	at := place{v, c.copy.Original.Home(n).Graph}
	if q, ok := c.dynamic.activations[at]; ok {
		return q
	}
	names := c.copy.Names
	q := quantity{names.Fresh(v.Name + "_quantized"), names.Fresh(v.Name + "_scale"), names.Fresh(v.Name + "_zero_point")}
	c.addBehind(n, "DynamicQuantizeLinear", []string{n.Input[0]}, []string{q.codes, q.scale, q.zero})
	if c.dynamic.activations == nil {
		c.dynamic.activations = map[place]quantity{}
	}
	c.dynamic.activations[at] = q
	return q
}

// addBehind adds a node to the graph of n. Nodes are sorted later.
func (c *Operators) addBehind(n *onnxpb.NodeProto, op string, inputs, outputs []string, attrs ...*onnxpb.AttributeProto) {
	added := &onnxpb.NodeProto{OpType: &op, Name: new(c.copy.Names.Fresh(outputs[0] + "_" + op)), Input: inputs, Output: outputs, Attribute: attrs}
	c.hide(added)
	c.copy.AddBehind(c.copy.Node(n), added)
}

// integerProduct turns a MatMul or Gemm into a MatMulInteger and the nodes that decode its result.
func (c *Operators) integerProduct(weight quantity, n *onnxpb.NodeProto) {
	result := c.integers(n, "MatMulInteger", weight, graph.HasInput(n, 2))
	if graph.HasInput(n, 2) {
		c.addBehind(n, "Add", []string{result, n.Input[2]}, []string{n.Output[0]})
	}
}

// integerConvolution turns a Conv into a ConvInteger and the nodes that decode its result. The bias
// gets the rank of the result before it is added.
func (c *Operators) integerConvolution(w *Weight, weight quantity, n *onnxpb.NodeProto, b *Builder) {
	attrs := n.Attribute
	result := c.integers(n, "ConvInteger", weight, graph.HasInput(n, 2), attrs...)
	if !graph.HasInput(n, 2) {
		return
	}
	shape := slices.Repeat([]int64{1}, len(w.Shape))
	shape[1] = -1
	bias := c.copy.Names.Fresh(n.Input[2] + "_Reshape_Output")
	c.addBehind(n, "Reshape", []string{n.Input[2], b.Shape(w.Name+"_bias", shape)}, []string{bias})
	c.addBehind(n, "Add", []string{result, bias}, []string{n.Output[0]})
}

// integers turns a node into op, which multiplies codes. A Cast and a Mul by the scales follow.
// integers returns the name of the result. That is the node's output, or a new name if more is set,
// because more nodes follow.
func (c *Operators) integers(n *onnxpb.NodeProto, op string, weight quantity, more bool, attrs ...*onnxpb.AttributeProto) string {
	x := c.activation(n)
	made := c.copy.Node(n)
	result := n.Output[0]
	names := c.copy.Names
	sums, floats, scales := names.Fresh(result+"_integers"), names.Fresh(result+"_floats"), names.Fresh(result+"_scale")
	if more {
		result = names.Fresh(result + "_scaled")
	}
	made.OpType, made.Overload = &op, nil
	c.hide(made)
	made.Input, made.Output, made.Attribute = []string{x.codes, weight.codes, x.zero, weight.zero}, []string{sums}, attrs
	c.addBehind(n, "Cast", []string{sums}, []string{floats}, IntAttr("to", int64(dtype.Float32)))
	c.addBehind(n, "Mul", []string{x.scale, weight.scale}, []string{scales})
	c.addBehind(n, "Mul", []string{floats, scales}, []string{result})
	return result
}

// lookUp makes a Gather read codes. finishDynamic adds a decoder if floats are needed.
func (c *Operators) lookUp(table quantity, n *onnxpb.NodeProto) {
	made := c.copy.Node(n)
	rows := &lookup{quantity{c.copy.Names.Fresh(n.Output[0] + "_quantized"), table.scale, table.zero}, n, c.copy.Original.Made(n), 0}
	made.Input[0], made.Output[0] = table.codes, rows.codes
	if c.dynamic.rows == nil {
		c.dynamic.rows = map[*graph.Value]*lookup{}
	}
	c.dynamic.rows[rows.value] = rows
	c.dynamic.order = append(c.dynamic.order, rows)
}

// finishDynamic decodes the looked-up rows that some operator reads as floats.
func (c *Operators) finishDynamic() {
	for _, rows := range c.dynamic.order {
		if rows.value.Output || rows.reads < len(rows.value.Uses) {
			c.addBehind(rows.node, "DequantizeLinear", []string{rows.codes, rows.scale, rows.zero}, []string{rows.value.Name})
		}
	}
}

// lstm turns an LSTM into a DynamicQuantizeLSTM once both weights have come.
func (c *Operators) lstm(weight quantity, l reach.Leaf) {
	number := c.copy.Original.Number(l.Node)
	if c.dynamic.halves == nil {
		c.dynamic.halves = map[int][2]quantity{}
	}
	both := c.dynamic.halves[number]
	both[l.Input-1] = weight
	c.dynamic.halves[number] = both
	if both[0].codes == "" || both[1].codes == "" {
		return
	}
	inputs := make([]string, 12)
	copy(inputs, l.Node.Input)
	for i, q := range both {
		inputs[1+i], inputs[8+2*i], inputs[9+2*i] = q.codes, q.scale, q.zero
	}
	attrs := slices.DeleteFunc(slices.Clone(c.copy.Node(l.Node).Attribute), func(a *onnxpb.AttributeProto) bool { return a.GetName() == "layout" })
	c.become(l.Node, "DynamicQuantizeLSTM", inputs, attrs...)
}

// attention turns com.microsoft's Attention into a QAttention.
func (c *Operators) attention(weight quantity, n *onnxpb.NodeProto) {
	x := c.activation(n)
	inputs := []string{x.codes, weight.codes, n.Input[2], x.scale, weight.scale, "", x.zero, weight.zero, ""}
	for from, to := range map[int]int{3: 5, 4: 8} {
		if graph.HasInput(n, from) {
			inputs[to] = n.Input[from]
		}
	}
	if inputs[8] == "" {
		inputs = inputs[:8]
	}
	c.become(n, "QAttention", inputs, c.copy.Node(n).Attribute...)
}

// embedding turns an EmbedLayerNormalization into a QEmbedLayerNormalization once all tensors have
// come.
func (c *Operators) embedding(tensor quantity, l reach.Leaf) {
	const first = 2 // first input that has codes
	n, number := l.Node, c.copy.Original.Number(l.Node)
	if c.dynamic.embeddings == nil {
		c.dynamic.embeddings = map[int][5]quantity{}
	}
	all := c.dynamic.embeddings[number]
	all[l.Input-first] = tensor
	c.dynamic.embeddings[number] = all
	inputs := slices.Repeat([]string{""}, 18)
	for _, i := range []int{0, 1, 7} {
		if graph.HasInput(n, i) {
			inputs[i] = n.Input[i]
		}
	}
	for i, q := range all {
		if q.codes == "" && graph.HasInput(n, first+i) {
			return
		}
		inputs[first+i], inputs[8+i], inputs[13+i] = q.codes, q.scale, q.zero
	}
	c.become(n, "QEmbedLayerNormalization", inputs, c.copy.Node(n).Attribute...)
}
