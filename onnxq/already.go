package onnxq

import (
	"iter"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// already begins the reasons of tensors that belong to quantized weights.
const already = "already quantized: "

// quantizedParts tells which values are a part of a quantized weight, and as
// what.
func quantizedParts(x *graphIndex) map[*value]string {
	parts := map[*value]string{}
	f := newFolder(x)
	f.functions = true
	walkNodes(x.file.Proto, func(n *onnxpb.NodeProto) {
		w := f.quantized(n)
		if w == nil || w.folded == nil {
			return
		}
		for _, part := range []struct {
			role string
			v    *value
		}{
			{"scale", w.folded.weight.scale}, {"zero point", w.folded.weight.zero}, {"scale of scales", w.folded.weight.whole},
			{"min", w.folded.weight.least}, {"scale of mins", w.folded.weight.leastWhole},
		} {
			if part.v != nil {
				parts[part.v] = already + part.role + " of " + w.Form
			}
		}
	})
	return parts
}

// signatures names the inputs of the operators that have to do with quantized
// tensors, in their order, by what they are; - is one that does not matter here.
// Inputs of the same number belong to a weight: the operator computes with its codes,
// which nothing decodes before. The operators of ONNX are those of its standard, those
// of com.microsoft of ONNX Runtime 1.31.
var signatures = map[string]string{
	"QuantizeLinear":   "input scale zero",
	"DequantizeLinear": "- scale zero",
	"QLinearMatMul":    "codes0 scale0 zero0 codes1 scale1 zero1 scale zero",
	"QLinearConv":      "input scale zero codes1 scale1 zero1 scale zero bias",
	"MatMulInteger":    "codes0 codes1 zero0 zero1",
	"ConvInteger":      "input codes1 zero zero1",

	contribDomain + ".QuantizeLinear":       "input scale zero",
	contribDomain + ".DequantizeLinear":     "- scale zero",
	contribDomain + ".MatMulNBits":          "- - scale zero - bias",
	contribDomain + ".GatherBlockQuantized": "- - scale zero",

	contribDomain + ".MatMulBnb4":                    "- codes1 scale1",
	contribDomain + ".MatMulFpQ4":                    "- codes1",
	contribDomain + ".MatMulInteger16":               "codes0 codes1",
	contribDomain + ".MatMulIntegerToFloat":          "codes0 codes1 scale0 scale1 zero0 zero1 bias",
	contribDomain + ".MatMulBlockQuantizedFp8Weight": "- codes1 scale1 scale bias",
	contribDomain + ".MatMulBlockQuantizedFp4Weight": "- codes1 scale1 scale scale bias",
	contribDomain + ".MatMulNBitsMlp":                "- - - codes1 scale1 bias codes2 scale2 bias",
	contribDomain + ".MatMulNBitsQkv":                "- - - codes1 scale1 bias codes2 scale2 bias codes3 scale3 bias",
	contribDomain + ".DynamicQuantizeMatMul":         "- codes1 scale1 zero1 bias",
	contribDomain + ".DynamicQuantizeLSTM":           "- codes1 codes2 bias - - - peephole scale1 zero1 scale2 zero2",
	contribDomain + ".QGemm":                         "codes0 scale0 zero0 codes1 scale1 zero1 bias scale zero",
	contribDomain + ".QAttention":                    "input codes1 bias scale scale1 - zero zero1",
	contribDomain + ".QMoE":                          "- - codes1 scale1 bias codes2 scale2 bias codes3 scale3 bias zero1 zero2 zero3 - scale scale scale scale scale scale",
	contribDomain + ".QEmbedLayerNormalization":      "- - codes1 codes2 codes3 codes4 codes5 - scale1 scale2 scale3 scale4 scale5 zero1 zero2 zero3 zero4 zero5",
	contribDomain + ".QOrderedMatMul":                "codes0 scale0 codes1 scale1 scale bias - scale",
	contribDomain + ".QOrderedAttention":             "input scale scale scale scale codes1 codes2 codes3 scale1 scale2 scale3 bias bias bias scale scale scale",
	contribDomain + ".QOrderedLongformerAttention":   "input scale codes1 scale1 bias scale scale - codes2 scale2 bias scale - scale",
	contribDomain + ".QLinearConv":                   "input scale zero codes1 scale1 zero1 scale zero bias",
	contribDomain + ".QLinearAdd":                    "- scale zero - scale zero scale zero",
	contribDomain + ".QLinearMul":                    "- scale zero - scale zero scale zero",
	contribDomain + ".QLinearWhere":                  "- - scale zero - scale zero scale zero",
	contribDomain + ".QLinearAveragePool":            "- scale zero scale zero",
	contribDomain + ".QLinearGlobalAveragePool":      "- scale zero scale zero",
	contribDomain + ".QLinearLeakyRelu":              "- scale zero scale zero",
	contribDomain + ".QLinearReduceMean":             "- scale zero scale zero",
	contribDomain + ".QLinearSigmoid":                "- scale zero scale zero",
	contribDomain + ".QLinearSoftmax":                "- scale zero scale zero",
}

// inputRole is what an input is to its operator.
type inputRole struct {
	what   string
	weight byte // the number of the weight it belongs to; 0: none
}

// rolesOf reads the signature of a node's operator.
func rolesOf(n *onnxpb.NodeProto) []inputRole {
	words := strings.Fields(signatures[operatorName(n)])
	roles := make([]inputRole, len(words))
	for i, word := range words {
		what := strings.TrimRight(word, "0123456789")
		if what != word {
			roles[i].weight = word[len(word)-1]
		}
		switch what {
		case "-":
		case "zero":
			roles[i].what = "zero point"
		default:
			roles[i].what = what
		}
	}
	return roles
}

// role says what a tensor is to an operator that computes with quantized ones,
// if it is such an operator.
func roleOfLeaf(l leaf) string {
	if roles := rolesOf(l.node); l.input < len(roles) && roles[l.input].what != "" {
		return roles[l.input].what + " of " + l.node.GetOpType()
	}
	return ""
}

// coded walks the weights with whose codes a node computes.
func coded(x *graphIndex, n *onnxpb.NodeProto) iter.Seq2[*value, *QuantizedWeight] {
	return func(yield func(*value, *QuantizedWeight) bool) {
		roles := rolesOf(n)
		for i, r := range roles {
			codes := x.source(use{n, i})
			if r.what == "codes" && codes != nil && codes.tensor != nil && (!codes.input || codes.mustBeInput) && !yield(codes, codedWeight(x, n, i, roles)) {
				return
			}
		}
	}
}

// codedWeight is the weight whose codes are an input of a node.
func codedWeight(x *graphIndex, n *onnxpb.NodeProto, input int, roles []inputRole) *QuantizedWeight {
	codes := x.source(use{n, input})
	w := &QuantizedWeight{
		Name: codes.path, Form: n.GetOpType(), Shape: append([]int64{}, codes.tensor.GetDims()...),
		Block: intAttribute(n, "block_size"), Codes: codes.name, Bytes: sizeOf(codes.tensor),
		Consumers: []string{use{n, input}.String()}, nodes: []*onnxpb.NodeProto{n},
		Obstacle: n.GetOpType() + " computes with its codes",
	}
	t := packedType(n, dtype.DType(codes.tensor.GetDataType()))
	w.CodeType, w.Bits = t.String(), int(t.Bits())
	for i, r := range roles {
		v := x.source(use{n, i})
		if v == nil || v.tensor == nil || r.weight != roles[input].weight {
			continue
		}
		switch r.what {
		case "scale":
			w.Scale = v.name
			n, _ := dtype.Elements(v.tensor.GetDims())
			w.PerTensor = n == 1
		case "zero point":
			w.ZeroPoint = v.name
		default:
			continue
		}
		w.Bytes += sizeOf(v.tensor)
	}
	return w
}

// packedType is the type of codes that are stored as another. Some operators pack
// several into a byte.
func packedType(n *onnxpb.NodeProto, stored dtype.DType) dtype.DType {
	if stored != dtype.Uint8 {
		return stored
	}
	bits := int64(8)
	switch n.GetOpType() {
	case "MatMulBnb4", "MatMulFpQ4", "MatMulBlockQuantizedFp4Weight":
		bits = 4
	case "MatMulNBitsMlp", "MatMulNBitsQkv":
		bits = intAttributeOr(n, "bits", 4)
	case "QMoE":
		bits = intAttributeOr(n, "expert_weight_bits", 4)
	}
	if t, ok := unsignedTypes[bits]; ok {
		return t
	}
	return stored
}
