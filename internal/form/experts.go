package form

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
)

// Inputs of com.microsoft's MoE and QMoE. A weight number is 0 for fc1, 1 for fc2 and 2 for fc3.
//
//	MoE    input, router_probs, fc1, bias1, fc2, bias2, fc3, bias3
//	QMoE   input, router_probs, codes1, scales1, bias1, codes2, scales2, bias2, codes3, scales3, bias3, zeros1, zeros2, zeros3, router_weights
const (
	routerProbs   = 1
	firstExperts  = 2
	firstZeros    = 11
	routerWeights = 14
)

// CodesOfExperts is the input of a QMoE with the codes of a weight.
func CodesOfExperts(weight int) int { return firstExperts + 3*weight }

// ZerosOfExperts is the input of a QMoE with the zero points of a weight.
func ZerosOfExperts(weight int) int { return firstZeros + weight }

// experts makes a QMoE of a MoE, unless another weight has done so, and puts in codes, scales and zero
// points of a weight.
func (c *Operators) experts(w *Weight, t Tensors, scale string, l reach.Leaf, b *Builder) {
	made := c.copy.Node(l.Node)
	if made.GetOpType() == "MoE" {
		c.becomeQMoE(w, l.Node, made, b)
	}
	weight := (l.Input - firstExperts) / 2
	at := CodesOfExperts(weight)
	setInput(made, at, t.Codes.GetName())
	setInput(made, at+1, scale)
	if t.Zeros != nil {
		setInput(made, ZerosOfExperts(weight), t.Zeros.GetName())
	}
}

// setInput sets an input of a node, which may be one behind its last.
func setInput(n *onnxpb.NodeProto, i int, name string) {
	for len(n.Input) <= i {
		n.Input = append(n.Input, "")
	}
	n.Input[i] = name
}

// becomeQMoE turns a MoE into a QMoE that has no weights yet.
//
// The CPU kernel of ONNX Runtime weighs the outputs of the chosen experts as if their weights were always
// normalized. Where they shall not be, they become an input: the Softmax over all experts.
//
// weights_prepacked 0 says that codes are stored as they are: without it, the CUDA kernel reads another order.
func (c *Operators) becomeQMoE(w *Weight, n, made *onnxpb.NodeProto, b *Builder) {
	added := &onnxpb.NodeProto{Input: slices.Clone(n.Input[:routerProbs+1])} // its inputs alone
	for weight := range 3 {
		if bias := firstExperts + 2*weight + 1; graph.HasInput(n, bias) {
			setInput(added, CodesOfExperts(weight)+2, n.Input[bias])
		}
	}
	if graph.IntAttribute(n, "normalize_routing_weights") == 0 {
		weights := b.Fresh(n.Input[routerProbs] + "_Softmax_Output")
		softmax := b.NewNode(n.Input[routerProbs], "Softmax", weights, n.Input[routerProbs:routerProbs+1], IntAttr("axis", 1))
		setInput(added, routerWeights, weights)
		c.hide(softmax)
		c.copy.AddBehind(made, softmax)
	}
	attrs := slices.Clone(n.Attribute)
	bits := int64(w.Choice.Format.Bits())
	attrs = append(attrs, IntAttr("expert_weight_bits", bits), IntAttr("weights_prepacked", 0))
	if block := w.Choice.NBits.Block; block != 0 {
		attrs = append(attrs, IntAttr("block_size", block))
		if level := w.Choice.AccuracyLevel.Attribute(); bits == 4 && level == 4 { // others compute with the same types at all levels
			attrs = append(attrs, IntAttr("accuracy_level", level))
		}
	}
	c.become(n, "QMoE", added.Input, attrs...)
}

// quantizedAttributes are the attributes of a QMoE that a MoE lacks.
var quantizedAttributes = []string{
	"expert_weight_bits", "fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits",
	"block_size", "weights_prepacked", "accuracy_level", "quant_type",
}

// ReadExperts makes a MoE of a QMoE, unless that has been done, and puts in the float value of a weight, whose
// codes are at an input of the QMoE.
func ReadExperts(n, made *onnxpb.NodeProto, codes int, value string) {
	if made.GetOpType() == "QMoE" {
		made.OpType, made.Input = new("MoE"), slices.Clone(n.Input[:routerProbs+1])
		made.Attribute = slices.DeleteFunc(slices.Clone(n.Attribute), func(a *onnxpb.AttributeProto) bool {
			return slices.Contains(quantizedAttributes, a.GetName())
		})
		for i := range 3 {
			if bias := CodesOfExperts(i) + 2; graph.HasInput(n, bias) {
				setInput(made, firstExperts+2*i+1, n.Input[bias])
			}
		}
	}
	setInput(made, firstExperts+(codes-firstExperts)/3*2, value)
}
