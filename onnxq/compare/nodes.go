package compare

import (
	"context"
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// gemm has the nodes that together compute a Gemm: Dequantize turns a MatMulNBits into a MatMul.
type gemm struct {
	product         *onnxpb.NodeProto
	transposed      *onnxpb.NodeProto // Transpose of the first factor, with transA
	scaled          *onnxpb.NodeProto // Mul by alpha, unless it is 1
	sum, scaledTerm *onnxpb.NodeProto // Add of C, and its Mul by beta, unless it is 1
}

// nodes lists the nodes that there are.
func (g *gemm) nodes() []*onnxpb.NodeProto {
	return slices.DeleteFunc([]*onnxpb.NodeProto{g.product, g.transposed, g.scaled, g.sum, g.scaledTerm}, func(n *onnxpb.NodeProto) bool { return n == nil })
}

// gemmOf finds the nodes of the second model that compute the Gemm x; y is the last of them. It
// returns nil if y does not end such a chain.
func (m *matcher) gemmOf(x, y *onnxpb.NodeProto) *gemm {
	if !graph.IsOperator(x, "Gemm") {
		return nil
	}
	g, at := &gemm{}, y
	if graph.HasInput(x, 2) {
		if !graph.IsOperator(at, "Add") {
			return nil
		}
		g.sum, at = at, m.madeFor(at, 0)
		if beta := graph.FloatAttributeOr(x, "beta", 1); beta != 1 {
			if g.scaledTerm = m.madeFor(g.sum, 1); !m.multipliesBy(g.scaledTerm, beta) {
				return nil
			}
		}
	}
	if alpha := graph.FloatAttributeOr(x, "alpha", 1); alpha != 1 {
		if g.scaled = at; !m.multipliesBy(at, alpha) {
			return nil
		}
		at = m.madeFor(at, 0)
	}
	if g.product = at; !graph.IsOperator(at, "MatMul") {
		return nil
	}
	if graph.IntAttribute(x, "transA") != 0 {
		if g.transposed = m.madeFor(at, 0); !graph.IsOperator(g.transposed, "Transpose") || !turnsMatrix(g.transposed) {
			return nil
		}
	}
	return g
}

// turnsMatrix reports whether a Transpose swaps the axes of a matrix.
func turnsMatrix(n *onnxpb.NodeProto) bool {
	perm := graph.Attribute(n, "perm")
	return perm == nil || slices.Equal(perm.GetInts(), []int64{1, 0})
}

// madeFor returns the node of the second model that makes an input of n, if only n reads it.
func (m *matcher) madeFor(n *onnxpb.NodeProto, input int) *onnxpb.NodeProto {
	v := m.b.Graph.Source(n, input)
	if v == nil || len(v.Uses) != 1 || v.Output {
		return nil
	}
	return v.Node
}

// multipliesBy reports whether a node of the second model multiplies by a constant, rounded to the
// type that the node computes in.
func (m *matcher) multipliesBy(n *onnxpb.NodeProto, factor float32) bool {
	if !graph.IsOperator(n, "Mul") || len(n.Input) != 2 {
		return false
	}
	v := m.b.Graph.Source(n, 1)
	if v == nil {
		return false
	}
	c := m.b.Fold(v)
	var x [1]float32
	return c != nil && len(c.Values.Shape) == 0 && c.Values.ReadAll(&lazy.Arena{}, x[:], 0) == nil && x[0] == c.Values.DType.Round(factor)
}

// nodes compares two nodes with the same output.
func (m *matcher) nodes(where string, x, y *onnxpb.NodeProto) error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	if m.isSteady(m.a.Graph.Made(x)) && m.isSteady(m.b.Graph.Made(y)) {
		return nil // constant outputs are compared where they are read
	}
	if x.GetName() != y.GetName() {
		m.note("%s%s is called %s", where, graph.Describe(x), msg.Quote(y.GetName()))
	}
	if g := m.gemmOf(x, y); g != nil {
		return m.gemm(where, x, g)
	}
	if product := m.fused(x, y); product != nil {
		return m.sum(where, x, product, y)
	}
	if c := m.convOf(x, y); c != nil {
		return m.biased(where, x, c)
	}
	if !sameOperator(x, y) {
		m.problem("%s%s is %s", where, graph.Describe(x), msg.Clean(graph.Operator(y)))
		return nil
	}
	if !slices.EqualFunc(m.a.Graph.Outputs(x), m.b.Graph.Outputs(y), func(v, w *graph.Value) bool { return (v == nil) == (w == nil) }) {
		m.problem("%s%s: outputs %s -> %s", where, graph.Describe(x), msg.Names(x.Output), msg.Names(y.Output))
	}
	if err := m.attributes(where, x, y); err != nil {
		return err
	}
	swapped := m.swapped(x, y)
	for i := range max(len(x.Input), len(y.Input)) {
		j := i
		if swapped {
			j = 1 - i
		}
		if err := m.inputs(place{where: where, node: x, input: i}, y, j, false); err != nil {
			return err
		}
	}
	return nil
}

// swapped reports whether two Adds or Muls have a constant factor on opposite sides.
func (m *matcher) swapped(x, y *onnxpb.NodeProto) bool {
	if !graph.IsStandard(x.GetDomain()) || x.GetOpType() != "Add" && x.GetOpType() != "Mul" || len(x.Input) != 2 || len(y.Input) != 2 {
		return false
	}
	a, b := m.a.Graph, m.b.Graph
	first := m.isSteady(a.Source(x, 0))
	return first != m.isSteady(a.Source(x, 1)) && first == m.isSteady(b.Source(y, 1)) && first != m.isSteady(b.Source(y, 0))
}

// gemm compares a Gemm with the nodes that compute it in the second model.
func (m *matcher) gemm(where string, x *onnxpb.NodeProto, g *gemm) error {
	m.note("%s%s is a MatMul", where, graph.Describe(x))
	first, addend := g.product, g.sum
	if g.transposed != nil {
		first = g.transposed
	}
	input := func(i int) place { return place{where: where, node: x, input: i} }
	err := m.inputs(input(0), first, 0, false)
	if err == nil {
		err = m.inputs(input(1), g.product, 1, graph.IntAttribute(x, "transB") != 0)
	}
	if err != nil || addend == nil {
		return err
	}
	if g.scaledTerm != nil {
		return m.inputs(input(2), g.scaledTerm, 0, false)
	}
	return m.inputs(input(2), addend, 1, false)
}

// attributes compares the attributes of two nodes, with their subgraphs.
func (m *matcher) attributes(where string, x, y *onnxpb.NodeProto) error {
	for _, a := range x.Attribute {
		b := graph.Attribute(y, a.GetName())
		gs := graph.Subgraphs(a)
		switch {
		case b == nil && isDefault(x, a):
		case b == nil:
			m.problem("%s%s: attribute %s is gone", where, graph.Describe(x), msg.Quote(a.GetName()))
		case len(gs) > 0 && len(gs) == len(graph.Subgraphs(b)):
			for i, g := range gs {
				if err := m.subgraphs(where+graph.Describe(x)+", "+msg.Clean(a.GetName())+": ", g, graph.Subgraphs(b)[i]); err != nil {
					return err
				}
			}
		default:
			changes, err := m.changes("attribute "+msg.Quote(a.GetName()), a, b)
			if err != nil {
				return err
			}
			for _, c := range changes {
				m.problem("%s%s: %s", where, graph.Describe(x), c)
			}
		}
	}
	for _, b := range y.Attribute {
		if graph.Attribute(x, b.GetName()) == nil && !isDefault(y, b) {
			m.problem("%s%s: attribute %s is new", where, graph.Describe(x), msg.Quote(b.GetName()))
		}
	}
	return nil
}

// isDefault reports whether an attribute of a node has its default value.
func isDefault(n *onnxpb.NodeProto, a *onnxpb.AttributeProto) bool {
	return graph.IsStandard(n.GetDomain()) && opset.IsDefault(n.GetOpType(), a)
}

// inputs compares the input at a place with input j of y. transposed: the first is the transpose.
func (m *matcher) inputs(at place, y *onnxpb.NodeProto, j int, transposed bool) error {
	v, w := m.a.Graph.Source(at.node, at.input), m.b.Graph.Source(y, j)
	switch {
	case v == nil && w == nil:
		return nil
	case v == nil || w == nil:
		m.problem("only one model has %s", at)
		return nil
	case m.isSteady(v) && m.isSteady(w):
		return m.constants(place{where: at.where, node: at.node, input: -1}, v, w, transposed)
	case transposed:
		m.problem("%s is transposed", at)
		return nil
	}
	return m.value(at, v, w)
}

// place says where two values are read or returned. Its text is made for a message alone: there may
// be very many places.
type place struct {
	where  string            // the graph or function
	node   *onnxpb.NodeProto // that reads them; nil: the graph returns them
	input  int               // of the node; -1: one of all
	output string            // of the graph
}

func (p place) String() string {
	switch {
	case p.node == nil:
		return p.where + "output " + msg.Quote(p.output)
	case p.input < 0:
		return p.where + graph.Describe(p.node)
	}
	return fmt.Sprintf("%s%s: input %d", p.where, graph.Describe(p.node), p.input)
}

// value compares two values that nodes or graphs read or return at the same place.
func (m *matcher) value(at place, v, w *graph.Value) error {
	v, w = m.unpaired(at, m.unnamed(at, v), w)
	v, w = m.unclipped(at, v, w)
	v = m.unnamed(at, v)
	if from := m.source(v, w); from != nil && m.depth < deepestMatch {
		m.depth++
		defer func() { m.depth-- }()
		return m.value(at, v, from)
	}
	switch steady := m.isSteady(v); {
	case steady && m.isSteady(w):
		return m.constants(at, v, w, false)
	case steady != m.isSteady(w) && v.Name == w.Name:
		m.problem("%s, %s, is a constant in one model only", at, msg.Quote(v.Name))
		return nil
	case v.Unusual() != nil && w.Unusual() != nil:
		changes, err := m.changes(at.String(), v.Unusual().Sparse, w.Unusual().Sparse)
		for _, c := range changes {
			m.problem("%s", c)
		}
		return err
	case v.Node == nil || w.Node == nil:
		if m.twin[v] != w {
			m.problem("%s is %s, was %s", at, msg.Quote(w.Name), msg.Quote(v.Name))
		}
		return nil
	}
	if m.gone[m.a.Graph.Number(v.Node)] && m.fresh[m.b.Graph.Number(w.Node)] && v.Node.GetOpType() == w.Node.GetOpType() && m.depth < deepestMatch {
		// The same value under another name.
		m.gone[m.a.Graph.Number(v.Node)] = false
		m.fresh[m.b.Graph.Number(w.Node)] = false
		m.partner[m.a.Graph.Number(v.Node)] = w.Node
		m.depth++
		defer func() { m.depth-- }()
		if err := m.nodes("", v.Node, w.Node); err != nil {
			return err
		}
	}
	if m.partner[m.a.Graph.Number(v.Node)] != w.Node || slices.Index(m.a.Graph.Outputs(v.Node), v) != slices.Index(m.b.Graph.Outputs(w.Node), w) {
		m.problem("%s is %s, was %s", at, msg.Quote(w.Name), msg.Quote(v.Name))
	}
	return nil
}

// unnamed passes over Identity nodes of the first model that the second lacks.
func (m *matcher) unnamed(at place, v *graph.Value) *graph.Value {
	for v.Node != nil && graph.IsOperator(v.Node, "Identity") && m.partner[m.a.Graph.Number(v.Node)] == nil && m.a.Graph.Source(v.Node, 0) != nil {
		if number := m.a.Graph.Number(v.Node); m.gone[number] {
			m.gone[number] = false
			m.note("%s: %s is gone", at, graph.Describe(v.Node))
		}
		v = m.a.Graph.Source(v.Node, 0)
	}
	return v
}

// source returns the input of a new Identity of the second model that makes w; nil if v comes from an
// Identity too, or w from another node.
func (m *matcher) source(v, w *graph.Value) *graph.Value {
	if w.Node == nil || !graph.IsOperator(w.Node, "Identity") || !m.fresh[m.b.Graph.Number(w.Node)] || v.Node != nil && sameOperator(v.Node, w.Node) {
		return nil
	}
	m.fresh[m.b.Graph.Number(w.Node)] = false
	return m.b.Graph.Source(w.Node, 0)
}

// unclipped passes over the effect of quantization on a value. The range of codes may replace a Relu
// or Clip of the first model. Dequantize writes a Clip or Relu for that range, also in the first model
// if it had codes.
func (m *matcher) unclipped(at place, v, w *graph.Value) (_, _ *graph.Value) {
	r, known := m.ranges[w.Name]
	if !known || w.Path != w.Name || w.Node == nil {
		return v, w
	}
	if clips(w.Node) {
		m.fresh[m.b.Graph.Number(w.Node)] = false
		w = m.uncast(m.b.Graph, m.b.Graph.Source(w.Node, 0), m.fresh)
	}
	from := m.behindCasts(m.a.Graph, v)
	if n := from.Node; n != nil && clips(n) && m.partner[m.a.Graph.Number(n)] == nil && (w.Node == nil || !sameOperator(n, w.Node)) {
		_, coded := m.rangesWere[from.Name]
		lo, hi, ok := m.bounds(n)
		if coded || ok && r.Lo >= lo-r.Step && r.Hi <= hi+r.Step {
			m.gone[m.a.Graph.Number(n)] = false
			if !coded {
				m.note("%s: its codes do what a %s did", at, n.GetOpType())
			}
			m.uncast(m.a.Graph, v, m.gone)
			v = m.a.Graph.Source(n, 0)
		}
	}
	return m.uncast(m.a.Graph, v, m.gone), w
}

// clips reports whether a node limits the range of values.
func clips(n *onnxpb.NodeProto) bool {
	return graph.IsOperator(n, "Clip") || graph.IsOperator(n, "Relu")
}

// bounds returns the limits of a Clip or Relu of the first model.
func (m *matcher) bounds(n *onnxpb.NodeProto) (lo, hi float64, ok bool) {
	switch {
	case !clips(n) || m.a.Graph.Source(n, 0) == nil:
		return 0, 0, false
	case n.GetOpType() == "Relu":
		return 0, math.Inf(1), true
	}
	lo, hi = float64(graph.FloatAttributeOr(n, "min", float32(math.Inf(-1)))), float64(graph.FloatAttributeOr(n, "max", float32(math.Inf(1))))
	for i, to := range []*float64{&lo, &hi} {
		if !graph.HasInput(n, 1+i) {
			continue
		}
		c := m.a.Fold(m.a.Graph.Source(n, 1+i))
		var x [1]float32
		if c == nil || c.Values.Size() != 1 || c.Values.ReadAll(&lazy.Arena{}, x[:], 0) != nil {
			return 0, 0, false
		}
		*to = float64(x[0])
	}
	return lo, hi, true
}

func sameOperator(x, y *onnxpb.NodeProto) bool {
	return x.GetOpType() == y.GetOpType() && graph.SameDomain(x.GetDomain(), y.GetDomain()) && x.GetOverload() == y.GetOverload()
}
