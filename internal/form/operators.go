package form

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/reach"
	"onnxquant/spec"
)

// Operators changes the operators that read weights, in a copy of a model.
type Operators struct {
	copy    *graph.Copy
	contrib bool // an operator of ONNX Runtime was added
	dynamic dynamic
	hidden  []*onnxpb.NodeProto // nodes with a temporary domain: see Show
	sums    map[sumsKey]string
}

// OperatorsOf returns the operators of a copy.
func OperatorsOf(c *graph.Copy) *Operators { return &Operators{copy: c} }

// ReadCodes replaces the operators of leaves by operators that read the codes of a weight.
// It adds the tensors to b.
func (c *Operators) ReadCodes(w *Weight, r reach.Reach, b *Builder) Tensors {
	t, scale := w.buildNBits(b)
	rows := t.Codes.GetName() // the codes as rows, for Gather
	if w.Choice.NBits.Product && w.Choice.NBits.Gather {
		shape := b.Shape(w.Name, []int64{w.Outer * w.Inner, w.K * int64(w.Choice.Format.Bits()) / 8})
		rows = b.Value(rows, "Reshape", []string{rows, shape})
	}
	for _, l := range r.Unread {
		for _, n := range append(l.Via, l.Node) {
			c.copy.Drop(n)
		}
	}
	for _, l := range r.Leaves {
		for _, n := range l.Via {
			c.copy.Drop(n)
		}
		switch {
		case w.Choice.NBits.Experts:
			c.experts(w, t, scale, l, b)
		case l.Node.GetOpType() == "Gather":
			c.gather(w, t, scale, l.Node, rows, b)
		default:
			c.product(w, t, scale, l.Node, b)
		}
	}
	return t
}

// gather turns a Gather into a GatherBlockQuantized.
func (c *Operators) gather(w *Weight, t Tensors, scale string, n *onnxpb.NodeProto, codes string, b *Builder) {
	inputs := []string{codes, n.Input[1], scale}
	if t.Zeros != nil {
		inputs = append(inputs, t.Zeros.GetName())
	}
	if t.Mins != nil {
		c.subtractMins(w, t.Mins.GetName(), n, "", b)
	}
	c.become(n, "GatherBlockQuantized", inputs,
		IntAttr("gather_axis", 0), IntAttr("quantize_axis", int64(len(w.Shape)-1)),
		IntAttr("block_size", w.Choice.NBits.Block), IntAttr("bits", int64(w.Choice.Format.Bits())))
}

// quantTypes are the quant_type of MatMulBnb4.
var quantTypes = map[spec.Format]int64{spec.FP4: 0, spec.NF4: 1}

// product turns a MatMul or Gemm into a MatMulBnb4 or a MatMulNBits. MatMulNBits also adds the bias
// per column, unless the Choice forbids that. Nodes around it do the rest of a Gemm.
func (c *Operators) product(w *Weight, t Tensors, scale string, n *onnxpb.NodeProto, b *Builder) {
	inputs := []string{n.Input[0], t.Codes.GetName(), scale, "", "", ""}
	if t.Zeros != nil {
		inputs[3] = t.Zeros.GetName()
	}
	columns, fold := w.Outer*w.Inner, !w.Choice.NoFoldBias && !w.bnb4()
	alpha, beta := graph.FloatAttributeOr(n, "alpha", 1), graph.FloatAttributeOr(n, "beta", 1)
	add, bias := biasBehind(c.copy.Original, n, columns, w)
	made := w.Choice.NBits.String() // also of a weight that a Gather reads, too: names in outputs stay
	switch plain := alpha == 1 && beta == 1; {
	case graph.HasInput(n, 2) && fold && plain && isBias(c.copy.Original, n, 2, columns, w):
		inputs[5] = n.Input[2]
	case graph.HasInput(n, 2):
		addend := n.Input[2]
		if beta != 1 {
			scaled := b.Fresh(w.Name + "_Mul_Output")
			c.copy.AddBehind(c.copy.Node(n), b.NewNode(w.Name, "Mul", scaled, []string{addend, b.Scalar("beta", w.DType, beta)}))
			addend = scaled
		}
		c.appendOperator(w, n, b, made, "Add", addend)
	case add != nil && fold && alpha == 1:
		inputs[5] = bias
		c.copy.Node(n).Output = c.copy.Node(add).Output
		c.copy.Drop(add)
	}
	if alpha != 1 {
		c.appendOperator(w, n, b, made, "Mul", b.Scalar("alpha", w.DType, alpha))
	}
	if graph.IntAttribute(n, "transA") != 0 {
		inputs[0] = b.Fresh(w.Name + "_Transpose_Output")
		c.copy.AddBehind(c.copy.Node(n), b.NewNode(w.Name, "Transpose", inputs[0], n.Input[:1]))
	}
	if t.Mins != nil {
		c.subtractMins(w, t.Mins.GetName(), n, inputs[0], b)
	}
	if w.bnb4() {
		c.become(n, "MatMulBnb4", inputs[:3],
			IntAttr("K", w.K), IntAttr("N", columns), IntAttr("block_size", w.Block), IntAttr("quant_type", quantTypes[w.Choice.Format]))
		return
	}
	for inputs[len(inputs)-1] == "" {
		inputs = inputs[:len(inputs)-1]
	}
	attrs := []*onnxpb.AttributeProto{
		IntAttr("K", w.K), IntAttr("N", columns),
		IntAttr("bits", int64(w.Choice.Format.Bits())), IntAttr("block_size", w.Choice.NBits.Block),
	}
	if level := w.Choice.AccuracyLevel.Attribute(); level != 0 {
		attrs = append(attrs, IntAttr("accuracy_level", level))
	}
	c.become(n, "MatMulNBits", inputs, attrs...)
}

// appendOperator appends a Mul, Add or Sub to a node that becomes the operator before. Its inputs are the output of the node
// and another value. It takes over the name of the output.
func (c *Operators) appendOperator(w *Weight, n *onnxpb.NodeProto, b *Builder, before, op, other string) {
	made := c.copy.Node(n)
	product := b.Fresh(w.Name + "_" + before + "_Output")
	last := b.NewNode(w.Name, op, made.Output[0], []string{product, other})
	made.Output = []string{product}
	c.copy.AddBehind(made, last)
}

// become turns the copy of a node into another operator.
func (c *Operators) become(n *onnxpb.NodeProto, op string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	c.contrib = true
	made := c.copy.Node(n)
	made.OpType, made.Domain, made.Overload = &op, new(graph.Contrib), nil
	made.Input, made.Attribute = inputs, attrs
}

// isBias reports whether an input is a constant vector of the weight's type with one element per
// column.
func isBias(x *graph.Graph, n *onnxpb.NodeProto, input int, columns int64, w *Weight) bool {
	v := x.Source(n, input)
	return v != nil && v.Tensor != nil && len(v.Tensor.GetDims()) == 1 && v.Tensor.GetDims()[0] == columns && v.Tensor.GetDataType() == int32(w.DType)
}

// biasBehind finds the Add of a bias to a product. The Add is in the same graph and the only reader
// of the product.
func biasBehind(x *graph.Graph, n *onnxpb.NodeProto, columns int64, w *Weight) (add *onnxpb.NodeProto, bias string) {
	v := x.Made(n)
	if v == nil || v.Output || len(v.Uses) != 1 {
		return nil, ""
	}
	u := v.Uses[0]
	other := 1 - u.Input
	if u.Node.GetOpType() != "Add" || len(u.Node.Input) != 2 || !graph.IsStandard(u.Node.GetDomain()) || x.Opset < 7 || x.Home(u.Node) != x.Home(n) || !isBias(x, u.Node, other, columns, w) {
		return nil, ""
	}
	return u.Node, u.Node.Input[other]
}

// ReadInstead makes all readers of v read the value with the given name.
func (c *Operators) ReadInstead(v *graph.Value, name string) {
	for _, u := range v.Uses {
		c.copy.Node(u.Node).Input[u.Input] = name
	}
}

// hide keeps a standard node from being converted when the opset is raised: the node is made for
// the new opset.
func (c *Operators) hide(n *onnxpb.NodeProto) {
	n.Domain = new(opset.Raised)
	c.hidden = append(c.hidden, n)
}

// Show must be called after the opset has been raised. It gives hidden nodes the standard domain.
func (c *Operators) Show() {
	for _, n := range c.hidden {
		n.Domain = nil
	}
}

// Finish removes dropped nodes and imports the domain of new operators. If there are new operators,
// Finish raises the IR version to one at which initializers need not be inputs.
func (c *Operators) Finish() {
	m := c.copy.Proto
	c.finishDynamic()
	c.copy.Tidy()
	if c.contrib {
		opset.RaiseIR(m, opset.FreeInitializers)
	}
	imports := func(domain string) bool {
		return slices.ContainsFunc(m.OpsetImport, func(o *onnxpb.OperatorSetIdProto) bool { return graph.SameDomain(o.GetDomain(), domain) })
	}
	if c.contrib && !imports(graph.Contrib) {
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(graph.Contrib), Version: new(int64(1))})
	}
	if len(c.hidden) > 0 && !imports("") {
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(""), Version: new(int64(13))})
	}
}
