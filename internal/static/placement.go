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
	InputsOnly   bool // operators have quantized inputs; outputs are quantized by what reads them
	Residuals    bool // with InputsOnly: few operators; of an Add, what a convolution does not make
	Always       bool // operators that pass values on are quantized, whatever makes these
	EveryOp      bool // also operators without a rule have all floats quantized
	KeepClips    bool // no Relu or Clip is removed
	FloatBias    bool // biases stay in float
	ConvChannels bool // MatMul has no scales for channels
	Halves       bool // Sigmoid and Tanh have fixed scales in 16 bits
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
	case p.Residuals:
		return residuals[op]
	case ok:
		return r
	case slices.Contains(plain, op), p.EveryOp && !slices.Contains(neverQuantized, op):
		return everything
	}
	return nil
}

// neverQuantized are operators that Placement.EveryOp leaves out.
var neverQuantized = []string{"Cast", "Constant", "QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan"}

// residuals are the rules of Placement.Residuals.
var residuals = map[string]rule{
	"Conv": convolution, "ConvTranspose": convolution, "Gemm": gemm, "MatMul": matMul,
	"AveragePool": everything, "GlobalAveragePool": everything, "MaxPool": everything,
	"Add": residual,
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

func (m *marking) fusesAdd(n *onnxpb.NodeProto) bool {
	switch n.GetOpType() {
	case "Conv", "ConvTranspose", "Gemm", "MatMul":
		return m.opts.Selects(n)
	}
	return false
}

// fixed returns the scale and zero point that a value has whatever its range.
func (p Placement) fixed(v *graph.Value, codes dtype.DType) (Params, bool) {
	if !p.Halves || v.Node == nil || !graph.IsStandard(v.Node.GetDomain()) {
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
