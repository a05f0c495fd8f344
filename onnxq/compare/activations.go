package compare

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq/recognize"
)

// coding is an activation of the second model with the type of its codes.
type coding struct {
	activation *graph.Value
	codes      dtype.DType
}

// unpaired passes over a QuantizeLinear and a DequantizeLinear that the second model alone has
// around an activation, and over each Relu or Clip of the first model that their codes replace.
func (m *matcher) unpaired(at place, v, w *graph.Value) (_, _ *graph.Value) {
	for range deepestMatch {
		p := m.b.Pair(w)
		if p == nil || decodes(v) || m.isSteady(w) {
			break
		}
		m.pass(p)
		w = p.Activation
		for n := v.Node; n != nil && m.partner[m.a.Graph.Number(n)] == nil && (w.Node == nil || !sameOperator(n, w.Node)); n = v.Node {
			lo, hi, ok := m.bounds(n)
			if !ok || !p.Clamps(lo, hi) {
				break
			}
			if m.gone[m.a.Graph.Number(n)] {
				m.note("%s: its codes do what %s does", at, graph.Describe(n))
			}
			m.gone[m.a.Graph.Number(n)] = false
			v = m.a.Graph.Source(n, 0)
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

func decodes(v *graph.Value) bool { return v.Node != nil && v.Node.GetOpType() == "DequantizeLinear" }

// unread passes over the pairs of the second model that nothing reads, which quantize_static
// leaves behind.
func (m *matcher) unread(nodes []*onnxpb.NodeProto) {
	for _, n := range nodes {
		v := m.b.Graph.Made(n)
		if v == nil || !m.fresh[m.b.Graph.Number(n)] || len(v.Uses) > 0 || v.Output || len(v.Returned()) > 0 {
			continue
		}
		if p := m.b.Pair(v); p != nil {
			m.pass(p)
		}
	}
}

// stands reports whether a node of the second model makes an output under the name that another
// node's has in the first model, because of the codes of an activation.
func (m *matcher) stands(x, y *onnxpb.NodeProto) bool {
	w := m.b.Graph.Made(y)
	if sameOperator(x, y) || w == nil || m.isSteady(w) {
		return false
	}
	if m.b.Pair(w) != nil {
		return true // an output of the model
	}
	if clips(x) {
		for _, use := range w.Uses {
			if use.Node.GetOpType() == "QuantizeLinear" {
				return true // which does what x did
			}
		}
	}
	return false
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
