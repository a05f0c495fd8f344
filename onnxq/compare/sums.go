package compare

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
)

// fused returns the product of the first model, a MatMul or Conv, that the second model computes
// together with the Add x behind it, in the Gemm or Conv y; nil if y is not that. ONNX Runtime's
// optimizer writes such a Gemm. Such a Conv is how a ConvInteger and an Add are decoded.
func (m *matcher) fused(x, y *onnxpb.NodeProto) *onnxpb.NodeProto {
	if !graph.IsOperator(x, "Add") || !graph.HasInput(y, 2) {
		return nil
	}
	var product string
	switch {
	case graph.IsOperator(y, "Conv"):
		product = "Conv"
	case graph.IsOperator(y, "Gemm") && graph.IntAttribute(y, "transA") == 0 && graph.IntAttribute(y, "transB") == 0 &&
		graph.FloatAttributeOr(y, "alpha", 1) == 1 && graph.FloatAttributeOr(y, "beta", 1) == 1:
		product = "MatMul"
	default:
		return nil
	}
	for i, v := range m.a.Graph.Inputs(x) {
		if v == nil || v.Node == nil || len(v.Uses) != 1 || v.Output || !graph.IsOperator(v.Node, product) || !m.gone[m.a.Graph.Number(v.Node)] {
			continue
		}
		if product == "MatMul" || !graph.HasInput(v.Node, 2) && channelBias(m.a, m.a.Graph.Source(x, 1-i)) != nil {
			return v.Node
		}
	}
	return nil
}

// channelBias returns the Reshape of a vector to [1, C, 1, …], as it is added to the result of a Conv; nil
// if another node makes the value.
func channelBias(f *recognize.Recognizer, v *graph.Value) *onnxpb.NodeProto {
	if v == nil || v.Node == nil || !graph.IsOperator(v.Node, "Reshape") || f.Graph.Source(v.Node, 0) == nil {
		return nil
	}
	from := f.Graph.Source(v.Node, 0).Tensor
	shape, ok := f.Graph.ConstantInts(v.Node, 1)
	if !ok || from == nil || len(from.Dims) != 1 || len(shape) < 3 || shape[1] != -1 && shape[1] != from.Dims[0] {
		return nil
	}
	shape[1] = 1
	if slices.ContainsFunc(shape, func(d int64) bool { return d != 1 }) {
		return nil
	}
	return v.Node
}

// sum compares a MatMul or Conv and the Add x behind it with the Gemm or Conv y of the second model.
func (m *matcher) sum(where string, x, product, y *onnxpb.NodeProto) error {
	m.note("%s%s and %s are a %s", where, graph.Describe(product), graph.Describe(x), y.GetOpType())
	m.gone[m.a.Graph.Number(product)] = false
	term := place{where: where, node: x}
	if m.a.Graph.Source(x, 0) == m.a.Graph.Made(product) {
		term.input = 1
	}
	if sameOperator(product, y) {
		if err := m.attributes(where, product, y); err != nil {
			return err
		}
		term = place{where: where, node: channelBias(m.a, m.a.Graph.Source(x, term.input))}
	}
	for j, at := range []place{{where: where, node: product}, {where: where, node: product, input: 1}, term} {
		if err := m.inputs(at, y, j, false); err != nil {
			return err
		}
	}
	return nil
}

// conv has the nodes of the second model that together compute a Conv with a bias.
type conv struct{ product, bias *onnxpb.NodeProto }

// convOf finds the nodes that compute the Conv x: y is an Add, of a Conv and a reshaped bias. It
// returns nil if y does not end such a chain.
func (m *matcher) convOf(x, y *onnxpb.NodeProto) *conv {
	if !graph.IsOperator(x, "Conv") || !graph.HasInput(x, 2) || !graph.IsOperator(y, "Add") {
		return nil
	}
	for i := range 2 {
		product, bias := m.madeFor(y, i), channelBias(m.b, m.b.Graph.Source(y, 1-i))
		if product != nil && sameOperator(x, product) && !graph.HasInput(product, 2) && bias != nil {
			return &conv{product, bias}
		}
	}
	return nil
}

// biased compares a Conv with the nodes that compute it in the second model.
func (m *matcher) biased(where string, x *onnxpb.NodeProto, c *conv) error {
	m.note("%s%s is a Conv and an Add", where, graph.Describe(x))
	if err := m.attributes(where, x, c.product); err != nil {
		return err
	}
	for i := range 2 {
		if err := m.inputs(place{where: where, node: x, input: i}, c.product, i, false); err != nil {
			return err
		}
	}
	return m.inputs(place{where: where, node: x, input: 2}, c.bias, 0, false)
}
