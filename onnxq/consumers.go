package onnxq

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// consumers changes the operators that read weights, in the copy of a model.
type consumers struct {
	index  *graph.Graph
	copies map[*onnxpb.NodeProto]*onnxpb.NodeProto   // of the input's nodes
	gone   map[*onnxpb.NodeProto]bool                // copies that are needed no more
	behind map[*onnxpb.NodeProto][]*onnxpb.NodeProto // what follows a copy
	domain string                                    // as the model spells that of the ONNX operators

	contrib bool // some operators are ONNX Runtime's own now
}

func newConsumers(x *graph.Graph, from, to *onnxpb.ModelProto) *consumers {
	c := &consumers{
		index:  x,
		copies: map[*onnxpb.NodeProto]*onnxpb.NodeProto{},
		gone:   map[*onnxpb.NodeProto]bool{},
		behind: map[*onnxpb.NodeProto][]*onnxpb.NodeProto{},
		domain: graph.SpellingOfStandard(to.OpsetImport),
	}
	var copies []*onnxpb.NodeProto // in the order of the originals
	graph.WalkNodes(to, func(n *onnxpb.NodeProto) { copies = append(copies, n) })
	i := 0
	graph.WalkNodes(from, func(n *onnxpb.NodeProto) {
		c.copies[n] = copies[i]
		i++
	})
	return c
}

// readCodes makes the operators that use a weight read its codes themselves.
func (c *consumers) readCodes(w *weight, b *builder) {
	w.buildNBits(b)
	rows := w.codes.GetName() // of codes, for Gather
	if w.d.choice.nbits.product && w.d.choice.nbits.gather {
		shape := b.shape(w.d.value.Name, []int64{w.outer * w.inner, w.k * int64(w.bits()) / 8})
		rows = b.value(rows, "Reshape", []string{rows, shape})
	}
	for _, l := range w.d.reach.Leaves {
		for _, n := range l.Via {
			c.gone[c.copies[n]] = true
		}
		if l.Node.GetOpType() == "Gather" {
			c.gather(w, l.Node, rows)
		} else {
			c.product(w, l.Node, b)
		}
	}
}

// gather turns a Gather into a GatherBlockQuantized.
func (c *consumers) gather(w *weight, n *onnxpb.NodeProto, codes string) {
	inputs := []string{codes, n.Input[1], w.scale.GetName()}
	if w.zero != nil {
		inputs = append(inputs, w.zero.GetName())
	}
	c.become(n, "GatherBlockQuantized", inputs,
		intAttr("gather_axis", 0), intAttr("quantize_axis", int64(len(w.d.shape)-1)),
		intAttr("block_size", w.d.choice.nbits.block), intAttr("bits", int64(w.bits())))
}

// product turns a MatMul or Gemm into a MatMulNBits, which also adds a bias for
// each column. What else a Gemm adds, an Add does.
func (c *consumers) product(w *weight, n *onnxpb.NodeProto, b *builder) {
	inputs := []string{n.Input[0], w.codes.GetName(), w.scale.GetName(), "", "", ""}
	if w.zero != nil {
		inputs[3] = w.zero.GetName()
	}
	columns := w.outer * w.inner
	add, bias := biasBehind(c.index, n, columns, w)
	switch {
	case graph.HasInput(n, 2) && isBias(c.index, n, 2, columns, w):
		inputs[5] = n.Input[2]
	case graph.HasInput(n, 2):
		made := c.copies[n]
		product := b.fresh(w.d.value.Name + "_MatMulNBits_Output")
		sum := b.loose(w.d.value.Name, "Add", made.Output[0], []string{product, n.Input[2]})
		made.Output = []string{product}
		c.behind[made] = []*onnxpb.NodeProto{sum}
	case add != nil:
		inputs[5] = bias
		c.copies[n].Output = c.copies[add].Output
		c.gone[c.copies[add]] = true
	}
	for inputs[len(inputs)-1] == "" {
		inputs = inputs[:len(inputs)-1]
	}
	c.become(n, "MatMulNBits", inputs,
		intAttr("K", w.k), intAttr("N", columns),
		intAttr("bits", int64(w.bits())), intAttr("block_size", w.d.choice.nbits.block))
}

// become makes the copy of a node another operator.
func (c *consumers) become(n *onnxpb.NodeProto, op string, inputs []string, attrs ...*onnxpb.AttributeProto) {
	c.contrib = true
	made := c.copies[n]
	made.OpType, made.Domain, made.Overload = &op, new(graph.Contrib), nil
	made.Input, made.Attribute = inputs, attrs
}

// isBias tells whether a constant is read that has an element for each column
// and the weight's type.
func isBias(x *graph.Graph, n *onnxpb.NodeProto, input int, columns int64, w *weight) bool {
	v := x.Source(n, input)
	return v != nil && v.Tensor != nil && len(v.Tensor.GetDims()) == 1 && v.Tensor.GetDims()[0] == columns && v.Tensor.GetDataType() == int32(w.d.dtype)
}

// biasBehind finds an Add, in the same graph, that alone reads a product and adds
// a bias to it.
func biasBehind(x *graph.Graph, n *onnxpb.NodeProto, columns int64, w *weight) (add *onnxpb.NodeProto, bias string) {
	v := x.Made(n)
	if v == nil || v.Output || len(v.Uses) != 1 {
		return nil, ""
	}
	u := v.Uses[0]
	other := 1 - u.Input
	if u.Node.GetOpType() != "Add" || len(u.Node.Input) != 2 || !graph.IsStandard(u.Node.GetDomain()) || x.Opset < 7 || x.Home[u.Node] != x.Home[n] || !isBias(x, u.Node, other, columns, w) {
		return nil, ""
	}
	return u.Node, u.Node.Input[other]
}

// readAnew makes all that read a value, but for one node, read another.
func (c *consumers) readAnew(v *graph.Value, name string) {
	for _, u := range v.Uses {
		c.copies[u.Node].Input[u.Input] = name
	}
}

// finish tidies up the graphs, imports the domain of the new operators, and
// raises the IR version to one whose initializers need not be inputs.
func (c *consumers) finish(m *onnxpb.ModelProto) {
	graph.WalkGraphs(m.Graph, c.tidy)
	if c.contrib {
		m.IrVersion = new(max(m.GetIrVersion(), 4))
	}
	imported := slices.ContainsFunc(m.OpsetImport, func(o *onnxpb.OperatorSetIdProto) bool { return o.GetDomain() == graph.Contrib })
	if c.contrib && !imported {
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(graph.Contrib), Version: new(int64(1))})
	}
}

// tidy removes the nodes that are gone from a graph, and adds those that follow
// others.
func (c *consumers) tidy(g *onnxpb.GraphProto) {
	if len(c.gone) == 0 && len(c.behind) == 0 {
		return
	}
	var nodes []*onnxpb.NodeProto
	made := map[string]bool{}
	for _, n := range g.Node {
		if !c.gone[n] {
			nodes = append(append(nodes, n), c.behind[n]...)
		}
	}
	for _, n := range nodes {
		for _, name := range n.Output {
			made[name] = true
		}
	}
	for _, n := range g.Node {
		if c.gone[n] {
			g.ValueInfo = slices.DeleteFunc(g.ValueInfo, func(v *onnxpb.ValueInfoProto) bool {
				return slices.Contains(n.Output, v.GetName()) && !made[v.GetName()]
			})
		}
	}
	g.Node = nodes
}
