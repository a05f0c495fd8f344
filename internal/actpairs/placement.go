package actpairs

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
)

// ruleOf returns the rule for a node, or nil if the node is not quantized.
func ruleOf(p target.Placement, n *onnxpb.NodeProto) rule {
	op := n.GetOpType()
	if !graph.IsStandard(n.GetDomain()) {
		if p.EveryOp || op == embedding && n.GetDomain() == graph.Contrib {
			return everything
		}
		return nil
	}
	switch r, ok := byOperator[op]; {
	case p.Fused && p.FloatMaxPool && op == "MaxPool":
		return nil
	case p.Fused:
		return fused[op]
	case ok:
		return r
	case slices.Contains(plain, op), p.EveryOp && !slices.Contains(neverQuantized, op):
		return everything
	}
	return nil
}

// neverQuantized lists operators that stay in float with target.Placement.EveryOp.
var neverQuantized = []string{"Cast", "Constant", "QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan"}

// fused has the rules of target.Placement.Fused. A runtime fuses a convolution or product with the
// Relu or Add behind it, so no pair is placed between them.
var fused = map[string]rule{
	"Conv": convolution, "ConvTranspose": convolution, "Gemm": gemm, "MatMul": matMul,
	"AveragePool": everything, "GlobalAveragePool": everything, "MaxPool": everything,
	"Add": residual, "Reshape": reshape,
}

// residual is for an Add with an output of a convolution or product that nothing else reads. The
// runtime fuses both with the Add. Only the other side, the residual, is quantized.
func residual(m *marking, n *onnxpb.NodeProto) {
	for i := range 2 {
		if v := m.x.Source(n, i); v != nil && v.Node != nil && len(v.Uses) == 1 && !v.Output && m.fusesAdd(v.Node) {
			if other := m.x.Source(n, 1-i); !m.stored(other) {
				m.mark(other, false)
			}
			return
		}
	}
}

// reshape quantizes its input behind a product with per-channel scales.
func reshape(m *marking, n *onnxpb.NodeProto) {
	if m.opts.Placement.BeforeReshape && m.hasChannels(m.x.Source(n, 0), maxBehind) {
		m.input(n, 0)
	}
}

// maxBehind is the largest number of nodes between a product and the value that hasChannels
// examines.
const maxBehind = 8

// hasChannels reports whether a value comes from a product with per-channel scales, directly or
// through elementwise operators.
func (m *marking) hasChannels(v *graph.Value, depth int) bool {
	if v == nil || v.Node == nil || depth == 0 || m.tensors[v] != nil || !m.opts.PerChannel {
		return false
	}
	switch v.Node.GetOpType() {
	case "MatMul", "Gemm":
		return m.opts.Selects(v.Node) && (m.stored(m.x.Source(v.Node, 0)) || m.stored(m.x.Source(v.Node, 1)))
	case "Add", "Sub", "Mul", "Relu", "Clip", "LeakyRelu", "Identity", "Squeeze", "Transpose", "Unsqueeze":
		return slices.ContainsFunc(m.x.Inputs(v.Node), func(in *graph.Value) bool { return m.hasChannels(in, depth-1) })
	}
	return false
}

func (m *marking) fusesAdd(n *onnxpb.NodeProto) bool {
	switch n.GetOpType() {
	case "Conv", "ConvTranspose", "Gemm", "MatMul":
		return m.opts.Selects(n)
	}
	return false
}

// fixed returns the scale and zero point that target.Placement.FixedScales prescribes for a value.
func fixed(v *graph.Value, codes dtype.DType) (Params, bool) {
	if v.Node == nil || !graph.IsStandard(v.Node.GetDomain()) {
		return Params{}, false
	}
	switch op := v.Node.GetOpType(); {
	case op == "Sigmoid" && codes == dtype.Uint16:
		return Params{1.0 / 65536, 0}, true
	case op == "Tanh" && codes == dtype.Uint16:
		return Params{1.0 / 32768, 32768}, true
	case (op == "Sigmoid" || op == "Tanh") && codes == dtype.Int16:
		return Params{1.0 / 32768, 0}, true
	}
	return Params{}, false
}
