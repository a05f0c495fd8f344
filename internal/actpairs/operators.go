package actpairs

import (
	"math"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// rule says which inputs and outputs of a node are quantized.
type rule func(m *marking, n *onnxpb.NodeProto)

// byOperator has the rules of operators for which everything would be wrong.
var byOperator = map[string]rule{
	"Conv":                  convolution,
	"ConvTranspose":         convolution,
	"Gemm":                  gemm,
	"MatMul":                matMul,
	"Clip":                  clip,
	"Relu":                  clip,
	"Reshape":               passing,
	"Transpose":             passing,
	"Squeeze":               passing,
	"Unsqueeze":             passing,
	"Flatten":               passing,
	"Slice":                 passing,
	"TopK":                  passing,
	"AveragePool":           passing,
	"MaxPool":               since(12, passing),
	"Resize":                since(11, passing),
	"Gather":                gather,
	"GatherElements":        gather,
	"Split":                 split,
	"Pad":                   pad,
	"Where":                 where,
	"InstanceNormalization": normalization,
	"LayerNormalization":    normalization,
	"BatchNormalization":    normalization,
}

// plain lists operators with rule everything.
var plain = []string{"Add", "ArgMax", "Concat", "CumSum", "GlobalAveragePool", "LeakyRelu", "Mul", "Sigmoid", "Softmax"}

// embedding is an operator of domain com.microsoft.
const embedding = "EmbedLayerNormalization"

// Operators lists the operators that are quantized by default, sorted.
func Operators() []string {
	all := append(slices.Clone(plain), embedding)
	for op := range byOperator {
		all = append(all, op)
	}
	slices.Sort(all)
	return all
}

// since returns a rule that applies from an opset on.
func since(opset int64, r rule) rule {
	return func(m *marking, n *onnxpb.NodeProto) {
		if m.opset >= opset {
			r(m, n)
		}
	}
}

// everything quantizes all float inputs and outputs.
func everything(m *marking, n *onnxpb.NodeProto) {
	for i := range n.Input {
		m.input(n, i)
	}
	m.outputs(n)
}

func convolution(m *marking, n *onnxpb.NodeProto) {
	m.input(n, 0)
	m.outputs(n)
	if m.weight4(n) {
		m.bias(n)
		return
	}
	axis := 0
	if n.GetOpType() == "ConvTranspose" {
		axis = 1
		if graph.IntAttributeOr(n, "group", 1) != 1 {
			axis = noAxis // axis 1 has the channels of a group, not of the output
		}
	}
	m.weight(n, 1, axis)
	m.bias(n)
}

func gemm(m *marking, n *onnxpb.NodeProto) {
	m.input(n, 0)
	m.outputs(n)
	axis := 1
	if graph.IntAttribute(n, "transB") != 0 {
		axis = 0
	}
	if !m.weight4(n) {
		m.weight(n, 1, axis)
	}
	if graph.FloatAttributeOr(n, "beta", 1) == 1 {
		m.bias(n) // else the scale of the bias would differ from that of the product
	}
}

// matMul gives each column of a stored matrix a scale. A stack of matrices has a single scale,
// because ONNX Runtime multiplies no stack with several.
func matMul(m *marking, n *onnxpb.NodeProto) {
	for i := range n.Input {
		v := m.x.Source(n, i)
		axis := noAxis
		if m.stored(v) && len(v.Tensor.GetDims()) == 2 && !m.opts.Placement.ConvChannels {
			axis = 1
		}
		switch {
		case !m.stored(v):
			m.input(n, i)
		case i == 0 || !m.weight4(n):
			m.weight(n, i, axis)
		}
	}
	m.outputs(n)
}

// clip is for Relu and Clip. The node is removed if the codes clip at the same values.
func clip(m *marking, n *onnxpb.NodeProto) {
	if !m.isQuantized(m.x.Source(n, 0)) {
		return
	}
	if !m.remove(n) {
		m.input(n, 0)
	}
	m.outputs(n)
}

// passing is for operators that move elements or take their mean. If the input is quantized, the
// output has its scale.
func passing(m *marking, n *onnxpb.NodeProto) {
	if m.isQuantized(m.x.Source(n, 0)) {
		m.passes(n, 1)
	}
}

func gather(m *marking, n *onnxpb.NodeProto) {
	v := m.x.Source(n, 0)
	if m.stored(v) {
		m.input(n, 0)
	}
	if m.isQuantized(v) {
		m.passes(n, 1)
	}
}

func split(m *marking, n *onnxpb.NodeProto) {
	m.input(n, 0)
	m.passes(n, len(n.Output))
}

func where(m *marking, n *onnxpb.NodeProto) {
	if m.isQuantized(m.x.Source(n, 1)) && m.isQuantized(m.x.Source(n, 2)) {
		m.outputs(n)
	}
}

// pad gives the output the scale of the input if the range of the input includes the padding. A
// range always includes 0.
func pad(m *marking, n *onnxpb.NodeProto) {
	for i := range n.Input {
		m.input(n, i)
	}
	if m.padsAlike(n) {
		m.passes(n, 1)
	} else {
		m.outputs(n)
	}
}

func (m *marking) padsAlike(n *onnxpb.NodeProto) bool {
	switch mode := string(graph.Attribute(n, "mode").GetS()); {
	case mode == "reflect" || mode == "edge" || mode == "wrap":
		return true
	case mode != "" && mode != "constant":
		return false
	case m.x.Opset < 11:
		return graph.FloatAttributeOr(n, "value", 0) == 0
	case !graph.HasInput(n, 2):
		return true
	}
	value, ok := m.x.ConstantFloat(m.x.Source(n, 2))
	return ok && value == 0
}

func normalization(m *marking, n *onnxpb.NodeProto) {
	m.input(n, 0)
	if v := m.x.Source(n, 1); m.stored(v) {
		axis := noAxis
		if len(v.Tensor.GetDims()) > 1 {
			axis = 1
		}
		m.weight(n, 1, axis)
	} else {
		m.input(n, 1)
	}
	m.bias(n)
	m.outputs(n)
}

// clipsTo reports whether codes for the range lo to hi, extended to 0, clip like a Relu or Clip.
func (m *marking) clipsTo(n *onnxpb.NodeProto, lo, hi float32) bool {
	least, most, ok := boundsOf(m.x, n)
	return ok && min(lo, 0) >= least && max(hi, 0) <= most
}

// boundsOf returns the bounds of a Relu or Clip, if they are constant.
func boundsOf(x *graph.Graph, n *onnxpb.NodeProto) (least, most float32, ok bool) {
	inf := float32(math.Inf(1))
	switch {
	case n.GetOpType() == "Relu":
		return 0, inf, true
	case x.Opset < 11:
		return graph.FloatAttributeOr(n, "min", -inf), graph.FloatAttributeOr(n, "max", inf), true
	}
	least, most, ok = -inf, inf, true
	for i, bound := range []*float32{1: &least, 2: &most} {
		if bound != nil && graph.HasInput(n, i) {
			known := false
			*bound, known = x.ConstantFloat(x.Source(n, i))
			ok = ok && known
		}
	}
	return least, most, ok
}
