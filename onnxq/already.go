package onnxq

import "onnxquant/internal/onnxpb"

// already begins the reasons of tensors that belong to quantized weights.
const already = "already quantized: "

// quantizedParts tells which values are a part of a quantized weight, and as
// what.
func (m *Model) quantizedParts() map[*value]string {
	parts := map[*value]string{}
	f := newFolder(m)
	f.functions = true
	walkNodes(m.file.Proto, func(n *onnxpb.NodeProto) {
		w := f.quantized(n)
		if w == nil || w.constant == nil {
			return
		}
		for role, v := range map[string]*value{
			"scale": w.weight.scale, "zero point": w.weight.zero, "scale of scales": w.weight.whole,
			"min": w.weight.least, "scale of mins": w.weight.leastWhole,
		} {
			if v != nil {
				parts[v] = already + role + " of " + w.Form
			}
		}
	})
	return parts
}

// Inputs of the operators that compute with quantized tensors, which are float
// tensors but no weights. Those of com.microsoft are in docs/ContribOperators.md
// of ONNX Runtime.
var quantizedInputs = map[string]map[int]string{
	"QuantizeLinear":   {0: "input", 1: "scale", 2: "zero point"},
	"DequantizeLinear": {1: "scale", 2: "zero point"},
	"QLinearMatMul":    {1: "scale", 4: "scale", 6: "scale"},
	"QLinearConv":      {1: "scale", 4: "scale", 6: "scale"},

	contribDomain + ".QuantizeLinear":           {0: "input", 1: "scale"},
	contribDomain + ".DequantizeLinear":         {1: "scale"},
	contribDomain + ".QGemm":                    {1: "scale", 4: "scale", 7: "scale"},
	contribDomain + ".QLinearAdd":               {1: "scale", 4: "scale", 6: "scale"},
	contribDomain + ".QLinearMul":               {1: "scale", 4: "scale", 6: "scale"},
	contribDomain + ".QAttention":               {2: "bias", 3: "scale", 4: "scale"},
	contribDomain + ".QMoE":                     {3: "scale", 4: "bias", 6: "scale", 7: "bias", 9: "scale", 10: "bias", 11: "zero point", 12: "zero point", 13: "zero point"},
	contribDomain + ".MatMulNBits":              {2: "scale", 3: "zero point", 5: "bias"},
	contribDomain + ".MatMulBnb4":               {2: "scale"},
	contribDomain + ".GatherBlockQuantized":     {2: "scale", 3: "zero point"},
	contribDomain + ".MatMulIntegerToFloat":     {2: "scale", 3: "scale", 6: "bias"},
	contribDomain + ".DynamicQuantizeMatMul":    {2: "scale", 4: "bias"},
	contribDomain + ".DynamicQuantizeLSTM":      {3: "bias", 7: "peephole", 8: "scale", 10: "scale"},
	contribDomain + ".QEmbedLayerNormalization": {8: "scale", 9: "scale", 10: "scale", 11: "scale", 12: "scale"},
}

// role says what a tensor is to an operator that computes with quantized ones,
// if it is such an operator.
func (l leaf) role() string {
	if role := quantizedInputs[operatorName(l.node)][l.input]; role != "" {
		return role + " of " + l.node.GetOpType()
	}
	return ""
}
