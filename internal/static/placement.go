package static

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Placement says where a runtime wants pairs of QuantizeLinear and DequantizeLinear. The zero
// Placement is that of ONNX Runtime's quantize_static.
type Placement struct {
	Fused         bool // only inputs of operators that compute with codes are quantized, as fuse says
	BeforeReshape bool // with Fused: so is the input of a Reshape behind a product with scales for channels
	EveryOp       bool // operators without a rule have all floats quantized
	KeepClips     bool // no Relu or Clip is removed
	FloatBias     bool // biases stay in float
	ConvChannels  bool // MatMul has no scales for channels
	FixedScales   bool // Sigmoid and Tanh have fixed scales in 16 bits
}

// rule returns the rule for a node, nil if it is not quantized.
func (p Placement) rule(n *onnxpb.NodeProto) rule {
	op := n.GetOpType()
	if !graph.IsStandard(n.GetDomain()) {
		if p.EveryOp || op == embedding && n.GetDomain() == graph.Contrib {
			return everything
		}
		return nil
	}
	switch r, ok := byOperator[op]; {
	case p.Fused:
		return fused[op]
	case ok:
		return r
	case slices.Contains(plain, op), p.EveryOp && !slices.Contains(neverQuantized, op):
		return everything
	}
	return nil
}

// neverQuantized are operators that Placement.EveryOp leaves out.
var neverQuantized = []string{"Cast", "Constant", "QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan"}

// fused are the rules of Placement.Fused. A runtime fuses a convolution or product with the Relu
// or Add behind it, so there is nothing between them.
var fused = map[string]rule{
	"Conv": convolution, "ConvTranspose": convolution, "Gemm": gemm, "MatMul": matMul,
	"AveragePool": everything, "GlobalAveragePool": everything, "MaxPool": everything,
	"Add": residual, "Reshape": reshape,
}

// residual quantizes one side of an Add whose other side a convolution or product computes for
// it alone: they are fused, with what is added.
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

// reshape quantizes what it reads behind a product with a scale for each channel.
func reshape(m *marking, n *onnxpb.NodeProto) {
	if m.opts.Placement.BeforeReshape && m.hasChannels(m.x.Source(n, 0), maxBehind) {
		m.input(n, 0)
	}
}

// maxBehind is how far behind a product hasChannels looks for it.
const maxBehind = 8

// hasChannels reports whether a product with a scale for each channel makes a value, or one from
// which it is made element by element.
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

// fixed returns the scale and zero point that a value has whatever its range.
func (p Placement) fixed(v *graph.Value, codes dtype.DType) (Params, bool) {
	if !p.FixedScales || v.Node == nil || !graph.IsStandard(v.Node.GetDomain()) {
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
