package recognize

import (
	"cmp"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// com.microsoft's QMoE reads the matrices [E, N, K] of E experts, by which it multiplies as their transposes:
//
//	codes        uint8 [E, N, K·bits/8]              the first in the low bits
//	scales       float [E, N, ⌈K/block⌉], or [E, N]   block_size 0: one scale per channel
//	zero_points  uint8 [E, N, ⌈⌈K/block⌉·bits/8⌉], or [E, ⌈N·bits/8⌉]; 2^(bits-1) if absent
//	value        (code - zero point) · scale
//
// Input i of codes has its scales at i+1.
var expertCodes = []int{2, 5, 8}

const (
	expertZeros = 11 // of the first weight
	routerProbs = 1
)

// RouterWeights is the input of a QMoE by which it weighs the outputs of experts.
const RouterWeights = 14

// IsQMoE reports whether a node is a QMoE of com.microsoft.
func IsQMoE(n *onnxpb.NodeProto) bool { return graph.Operator(n) == graph.Contrib+".QMoE" }

// expertsOf describes the weights of a node, if it is a QMoE. It describes none if no MoE can replace the node;
// obstacle says why.
func (f *Recognizer) expertsOf(n *onnxpb.NodeProto) (list []*Weight, obstacle string) {
	if !IsQMoE(n) {
		return nil, ""
	}
	if obstacle = f.mixtureObstacle(n); obstacle != "" {
		return nil, obstacle
	}
	for i, input := range expertCodes {
		if !graph.HasInput(n, input) && i == 2 {
			continue
		}
		c, obstacle := f.packedExperts(n, i)
		if obstacle != "" {
			return nil, obstacle
		}
		list = append(list, f.selfDecoded(n, input, c, ""))
	}
	fc1, fc2 := list[0].Shape, list[1].Shape
	if fc1[0] != fc2[0] || fc1[2] != fc2[1] || fc1[1] != fc2[2] && fc1[1] != 2*fc2[2] {
		return nil, "the shapes of its weights do not fit each other"
	}
	return list, ""
}

// mixtureObstacle returns why a MoE cannot do what a QMoE does, whatever its weights are, or "".
func (f *Recognizer) mixtureObstacle(n *onnxpb.NodeProto) string {
	if kind := string(graph.Attribute(n, "quant_type").GetS()); kind != "" && kind != "int" {
		return fmt.Sprintf("its quant_type is %q", kind)
	}
	if graph.IntAttributeOr(n, "weights_prepacked", -1) == 1 {
		return "its codes are packed for one device (weights_prepacked)"
	}
	if !graph.HasInput(n, RouterWeights) {
		return ""
	}
	v := f.Graph.Source(n, RouterWeights)
	if v == nil || v.Node == nil || !graph.IsOperator(v.Node, "Softmax") || f.Graph.Source(v.Node, 0) == nil || f.Graph.Source(v.Node, 0) != f.Graph.Source(n, routerProbs) {
		return "its router_weights are not the Softmax of its router_probs, which MoE takes"
	}
	byDefault := int64(1)
	if f.Graph.Opset >= 13 {
		byDefault = -1
	}
	if axis := graph.IntAttributeOr(v.Node, "axis", byDefault); axis != 1 && axis != -1 {
		return fmt.Sprintf("the Softmax of its router_weights has axis %d", axis)
	}
	return ""
}

// packedExperts recognizes a weight of a QMoE.
func (f *Recognizer) packedExperts(n *onnxpb.NodeProto, weight int) (c *Constant, obstacle string) {
	input := expertCodes[weight]
	bits := graph.IntAttributeOr(n, fmt.Sprintf("fc%d_expert_weight_bits", weight+1), graph.IntAttributeOr(n, "expert_weight_bits", 4))
	codes, scale := f.input(n, input), f.input(n, input+1)
	switch {
	case codes == nil || scale == nil || codes.Values.Stored == nil:
		return nil, "codes and scales are not constant"
	case bits != 2 && bits != 4 && bits != 8:
		return nil, fmt.Sprintf("codes of %d bits", bits)
	case codes.Values.DType != dtype.Uint8 || len(codes.Values.Shape) != 3 || codes.Values.Size() == 0:
		return nil, "its codes are no uint8 tensor with three axes"
	}
	experts, columns := codes.Values.Shape[0], codes.Values.Shape[1]
	shape := []int64{experts, columns, codes.Values.Shape[2] * (8 / bits)}
	k, block := shape[2], graph.IntAttribute(n, "block_size")
	if block < 0 {
		block = 0
	}
	whole := cmp.Or(block, k)
	if _, err := dtype.Elements(shape); err != nil {
		return nil, "its tensor of codes is too large"
	}
	blocks := shapes.DivideUp(k, whole)
	want := []int64{experts, columns, blocks}
	if block == 0 {
		want = want[:2]
	}
	if !scale.Values.DType.Float() || !slices.Equal(scale.Values.Shape, want) {
		return nil, "the shape of its scales does not fit its codes"
	}
	rows := experts * columns
	d := &Decoder{
		Form: "QMoE", Codes: codes.Source, Scale: scale.Source, TensorScale: scale.factor, Scales: scale.stored, Step: scale.step, CodeType: unsignedTypes[bits],
		blocking: blocking{2, whole}, S: scale.Values.Reshaped([]int64{experts, columns, blocks}),
		Grid:     &lazy.Grid{Stored: codes.Values.Stored, Bits: int(bits), Rows: rows, Cols: k, Pitch: k},
		ScaleMap: lazy.ScaleMap{K: k, Inner: 1, Block: whole, Blocks: blocks},
	}
	d.X = d.Grid.Tensor().Reshaped(shape)
	if block == 0 {
		rows, blocks = experts, columns // of the grid of zero points
	}
	if obstacle := f.packedZeros(d, n, expertZeros+weight, rows, blocks, 0); obstacle != "" {
		return nil, obstacle
	}
	values := lazy.Dequantized(d.X, d.S, d.Z, d.ScaleMap, scale.Values.DType)
	values.Shape = shape
	return &Constant{Values: values, Source: codes.Source, Decoder: d}, ""
}
