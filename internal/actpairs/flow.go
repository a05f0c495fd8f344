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
	return !m.opts.FloatProducts || isProduct(n) && !m.addsProduct(n) || m.flows(n)
}

// addsProduct reports whether the Add behind a MatMul reads what a node behind that makes, as steps of an LSTM do that are
// written out. ONNX Runtime makes a Gemm of MatMul and Add, whose C is no constant. It decodes the weight at every run then.
func (m *marking) addsProduct(n *onnxpb.NodeProto) bool {
	y := m.x.Made(n)
	if n.GetOpType() != "MatMul" || y == nil || y.Output || len(y.Uses) != 1 || m.rank(m.x.Source(n, 0)) != 2 || !m.stored(m.x.Source(n, 1)) {
		return false
	}
	add := y.Uses[0]
	if !graph.IsOperator(add.Node, "Add") {
		return false
	}
	other := m.x.Source(add.Node, 1-add.Input)
	return other != nil && other.Node != nil && m.x.Home(other.Node) == m.x.Home(n) && m.x.Number(other.Node) > m.x.Number(n)
}

// rank is the number of axes of a value, 0 if it is not known.
func (m *marking) rank(v *graph.Value) int {
	more := 0
	for v != nil {
		if dims := m.shapes.Of(v); dims != nil {
			return len(dims) + more
		}
		if v.Node == nil {
			return 0
		}
		switch op := v.Node.GetOpType(); op {
		case "Slice", "Split":
		case "Squeeze", "Unsqueeze":
			axes := graph.Attribute(v.Node, "axes").GetInts()
			if axes == nil {
				axes, _ = m.x.ConstantInts(v.Node, 1)
			}
			if len(axes) == 0 {
				return 0
			}
			if op == "Squeeze" {
				more -= len(axes)
			} else {
				more += len(axes)
			}
		default:
			return 0
		}
		v = m.x.Source(v.Node, 0)
	}
	return 0
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
