package compare

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
)

// coding is an activation of the second model with the type of its codes.
type coding struct {
	activation *graph.Value
	codes      dtype.DType
}

// pair returns the pair that makes a value of the second model, or nil. It looks through a Cast to or
// from half behind the pair.
func (m *matcher) pair(w *graph.Value) *recognize.Pair {
	if p := m.b.Pair(w); p != nil || !m.castsHalf(w.Node) {
		return p
	}
	if from := m.b.Graph.Source(w.Node, 0); from != nil {
		return m.b.Pair(from)
	}
	return nil
}

// castsHalf reports whether a node is a Cast to the type that float32 became, or back.
func (m *matcher) castsHalf(n *onnxpb.NodeProto) bool {
	if m.half == 0 || n == nil || !graph.IsOperator(n, "Cast") {
		return false
	}
	to := dtype.DType(graph.IntAttribute(n, "to"))
	return to == m.half || to == dtype.Float32
}

// behindCasts follows a value of a graph back through such Casts.
func (m *matcher) behindCasts(x *graph.Graph, v *graph.Value) *graph.Value {
	for m.castsHalf(v.Node) && x.Source(v.Node, 0) != nil {
		v = x.Source(v.Node, 0)
	}
	return v
}

// uncast is like behindCasts; the Casts then need no partner.
func (m *matcher) uncast(x *graph.Graph, v *graph.Value, alone []bool) *graph.Value {
	for from := m.behindCasts(x, v); v != from; v = x.Source(v.Node, 0) {
		alone[x.Number(v.Node)] = false
	}
	return v
}

// unpaired passes over a QuantizeLinear and DequantizeLinear that only the second model has around an
// activation. It also passes over each Relu or Clip of the first model that their codes replace. Casts
// to half may be around the pair in either model.
func (m *matcher) unpaired(at place, v, w *graph.Value) (_, _ *graph.Value) {
	for range deepestMatch {
		p := m.pair(w)
		if p == nil || m.decodes(v) || m.isSteady(w) {
			break
		}
		m.pass(p)
		m.uncast(m.b.Graph, w, m.fresh)
		v, w = m.unnamed(at, m.uncast(m.a.Graph, v, m.gone)), m.uncast(m.b.Graph, p.Activation, m.fresh)
		for n := v.Node; n != nil && m.partner[m.a.Graph.Number(n)] == nil && (w.Node == nil || !sameOperator(n, w.Node)); n = v.Node {
			lo, hi, ok := m.bounds(n)
			if !ok || !p.Clamps(lo, hi) {
				break
			}
			if m.gone[m.a.Graph.Number(n)] {
				m.note("%s: its codes do what %s does", at, graph.Describe(n))
			}
			m.gone[m.a.Graph.Number(n)] = false
			v = m.unnamed(at, m.uncast(m.a.Graph, m.a.Graph.Source(n, 0), m.gone))
		}
	}
	return v, w
}

// pass passes over a pair.
func (m *matcher) pass(p *recognize.Pair) {
	m.fresh[m.b.Graph.Number(p.Quantize)] = false
	m.fresh[m.b.Graph.Number(p.Dequantize)] = false
	m.coded[coding{p.Activation, p.Codes}] = true
}

// decodes reports whether a DequantizeLinear of the first model makes a value.
func (m *matcher) decodes(v *graph.Value) bool {
	if m.castsHalf(v.Node) && m.a.Graph.Source(v.Node, 0) != nil {
		v = m.a.Graph.Source(v.Node, 0)
	}
	return v.Node != nil && v.Node.GetOpType() == "DequantizeLinear"
}

// unread passes over the pairs of the second model that nothing reads, which quantize_static
// leaves behind.
func (m *matcher) unread(nodes []*onnxpb.NodeProto) {
	for _, n := range nodes {
		v := m.b.Graph.Made(n)
		if v == nil || !m.fresh[m.b.Graph.Number(n)] || len(v.Uses) > 0 || v.Output || len(v.Returned()) > 0 {
			continue
		}
		if p := m.pair(v); p != nil {
			m.pass(p)
		}
	}
}

// tookName reports whether a node of the second model makes an output under the name of another node's
// output in the first model, because the codes of an activation took its place.
func (m *matcher) tookName(x, y *onnxpb.NodeProto) bool {
	w := m.b.Graph.Made(y)
	if w == nil || m.isSteady(w) {
		return false
	}
	if sameOperator(x, y) {
		return m.castsHalf(y) && m.isCoded(w) // it may be for the codes alone
	}
	return m.pair(w) != nil || // an output of the model
		clips(x) && m.isCoded(w) // whose codes do what x did
}

// isCoded reports whether a QuantizeLinear reads a value of the second model.
func (m *matcher) isCoded(w *graph.Value) bool {
	return slices.ContainsFunc(w.Uses, func(u graph.Use) bool {
		return u.Node.GetOpType() == "QuantizeLinear" || m.castsHalf(u.Node) && m.isCoded(m.b.Graph.Made(u.Node))
	})
}

// countActivations sums up the activations that are quantized.
func (m *matcher) countActivations() {
	for c := range m.coded {
		if m.result.Activations == nil {
			m.result.Activations = map[string]int{}
		}
		m.result.Activations[c.codes.String()]++
	}
}
