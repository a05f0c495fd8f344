package actpairs

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// joins reports whether a node is quantized with FloatProducts: a product, a convolution, a look-up in a table, or an operator
// that reads the codes of a convolution.
func (m *marking) joins(n *onnxpb.NodeProto) bool {
	switch n.GetOpType() {
	case "Gather", embedding:
		return true
	}
	return !m.opts.FloatProducts || isProduct(n) || m.flows(n)
}

// follow notes what a node makes of the codes of convolutions.
func (m *marking) follow(n *onnxpb.NodeProto) {
	if !m.opts.FloatProducts || isProduct(n) || !m.flows(n) {
		return
	}
	for _, v := range m.x.Outputs(n) {
		if m.isQuantized(v) {
			m.flowing[v] = true
		}
	}
}

// flows reports whether a node makes or reads the codes of convolutions.
func (m *marking) flows(n *onnxpb.NodeProto) bool {
	return isConvolution(n) || slices.ContainsFunc(m.x.Inputs(n), func(v *graph.Value) bool { return m.flowing[v] })
}

func isProduct(n *onnxpb.NodeProto) bool { return n.GetOpType() == "MatMul" || n.GetOpType() == "Gemm" }

func isConvolution(n *onnxpb.NodeProto) bool {
	return n.GetOpType() == "Conv" || n.GetOpType() == "ConvTranspose"
}
