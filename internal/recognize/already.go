package recognize

import (
	"iter"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
)

// Already is the prefix of the reason of a tensor that is part of a quantized weight.
const Already = "already quantized: "

// Parts returns the values that are parts of quantized weights, with the reason why they
// are not quantized themselves.
func Parts(x *graph.Graph) map[*graph.Value]string {
	parts := map[*graph.Value]string{}
	f := New(x)
	f.Functions = true
	graph.WalkNodes(x.File.Proto, func(n *onnxpb.NodeProto) {
		w := f.quantized(n)
		if w == nil || w.Constant == nil {
			return
		}
		for _, part := range []struct {
			role string
			v    *graph.Value
		}{
			{"scale", w.Constant.Decoder.Scale}, {"zero point", w.Constant.Decoder.Zero}, {"scale of scales", w.Constant.Decoder.TensorScale},
			{"min", w.Constant.Decoder.Mins}, {"scale of mins", w.Constant.Decoder.MinScale},
		} {
			if part.v != nil {
				parts[part.v] = Already + part.role + " of " + w.Form
			}
		}
	})
	return parts
}

// signatures lists operators on quantized tensors with the role of each input; - is an input without a
// role here. Inputs with the same number are parts of one weight, whose codes the operator reads
// without decoding. The operators of com.microsoft are those of ONNX Runtime 1.31.
var signatures = map[string]string{
	"QuantizeLinear":   "input scale zero",
	"DequantizeLinear": "- scale zero",
	"QLinearMatMul":    "codes0 scale0 zero0 codes1 scale1 zero1 scale zero",
	"QLinearConv":      "input scale zero codes1 scale1 zero1 scale zero bias",
	"MatMulInteger":    "codes0 codes1 zero0 zero1",
	"ConvInteger":      "input codes1 zero zero1",

	graph.Contrib + ".QuantizeLinear":       "input scale zero",
	graph.Contrib + ".DequantizeLinear":     "- scale zero",
	graph.Contrib + ".MatMulNBits":          "- - scale zero - bias",
	graph.Contrib + ".MatMulBnb4":           "- - scale",
	graph.Contrib + ".GatherBlockQuantized": "- - scale zero",

	graph.Contrib + ".MatMulFpQ4":                    "- codes1",
	graph.Contrib + ".MatMulInteger16":               "codes0 codes1",
	graph.Contrib + ".MatMulIntegerToFloat":          "codes0 codes1 scale0 scale1 zero0 zero1 bias",
	graph.Contrib + ".MatMulBlockQuantizedFp8Weight": "- codes1 scale1 scale bias",
	graph.Contrib + ".MatMulBlockQuantizedFp4Weight": "- codes1 scale1 scale scale bias",
	graph.Contrib + ".MatMulNBitsMlp":                "- - - codes1 scale1 bias codes2 scale2 bias",
	graph.Contrib + ".MatMulNBitsQkv":                "- - - codes1 scale1 bias codes2 scale2 bias codes3 scale3 bias",
	graph.Contrib + ".DynamicQuantizeMatMul":         "- codes1 scale1 zero1 bias",
	graph.Contrib + ".DynamicQuantizeLSTM":           "- codes1 codes2 bias - - - peephole scale1 zero1 scale2 zero2",
	graph.Contrib + ".QGemm":                         "codes0 scale0 zero0 codes1 scale1 zero1 bias scale zero",
	graph.Contrib + ".QAttention":                    "input codes1 bias scale scale1 - zero zero1",
	graph.Contrib + ".QMoE":                          "- - codes1 scale1 bias codes2 scale2 bias codes3 scale3 bias zero1 zero2 zero3 - scale scale scale scale scale scale",
	graph.Contrib + ".QEmbedLayerNormalization":      "- - codes1 codes2 codes3 codes4 codes5 - scale1 scale2 scale3 scale4 scale5 zero1 zero2 zero3 zero4 zero5",
	graph.Contrib + ".QOrderedMatMul":                "codes0 scale0 codes1 scale1 scale bias - scale",
	graph.Contrib + ".QOrderedAttention":             "input scale scale scale scale codes1 codes2 codes3 scale1 scale2 scale3 bias bias bias scale scale scale",
	graph.Contrib + ".QOrderedLongformerAttention":   "input scale codes1 scale1 bias scale scale - codes2 scale2 bias scale - scale",
	graph.Contrib + ".QLinearConv":                   "input scale zero codes1 scale1 zero1 scale zero bias",
	graph.Contrib + ".QLinearAdd":                    "- scale zero - scale zero scale zero",
	graph.Contrib + ".QLinearMul":                    "- scale zero - scale zero scale zero",
	graph.Contrib + ".QLinearWhere":                  "- - scale zero - scale zero scale zero",
	graph.Contrib + ".QLinearAveragePool":            "- scale zero scale zero",
	graph.Contrib + ".QLinearGlobalAveragePool":      "- scale zero scale zero",
	graph.Contrib + ".QLinearLeakyRelu":              "- scale zero scale zero",
	graph.Contrib + ".QLinearReduceMean":             "- scale zero scale zero",
	graph.Contrib + ".QLinearSigmoid":                "- scale zero scale zero",
	graph.Contrib + ".QLinearSoftmax":                "- scale zero scale zero",
}

// inputRole is the role of an input of an operator.
type inputRole struct {
	what   string
	weight byte // digit of the weight it is part of; 0: none
}

// roles has the parsed signatures.
var roles = func() map[string][]inputRole {
	parsed := map[string][]inputRole{}
	for operator, signature := range signatures {
		parsed[operator] = parseSignature(signature)
	}
	return parsed
}()

// rolesOf returns the roles of a node's inputs; none if its operator has no signature.
func rolesOf(n *onnxpb.NodeProto) []inputRole { return roles[graph.Operator(n)] }

func parseSignature(signature string) []inputRole {
	words := strings.Fields(signature)
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

// RoleOf returns the role of a tensor in an operator on quantized tensors, such as "scale of
// QLinearConv", or "".
func RoleOf(l reach.Leaf) string {
	if roles := rolesOf(l.Node); l.Input < len(roles) && roles[l.Input].what != "" {
		return roles[l.Input].what + " of " + l.Node.GetOpType()
	}
	return ""
}

// coded iterates over the weights whose codes a node computes with, without decoding them.
func coded(x *graph.Graph, n *onnxpb.NodeProto) iter.Seq2[*graph.Value, *Weight] {
	return func(yield func(*graph.Value, *Weight) bool) {
		roles := rolesOf(n)
		for i, r := range roles {
			codes := x.Source(n, i)
			if r.what == "codes" && codes != nil && codes.Tensor != nil && (!codes.Input || codes.MustBeInput) && !yield(codes, codedWeight(x, n, i, roles)) {
				return
			}
		}
	}
}

// codedWeight describes the weight whose codes are an input of a node.
func codedWeight(x *graph.Graph, n *onnxpb.NodeProto, input int, roles []inputRole) *Weight {
	codes := x.Source(n, input)
	w := &Weight{
		Name: codes.Path, Form: n.GetOpType(), Shape: append([]int64{}, codes.Tensor.GetDims()...),
		Block: graph.IntAttribute(n, "block_size"), Codes: codes.Name, Bytes: graph.SizeOf(codes.Tensor),
		Consumers: []string{graph.Use{Node: n, Input: input}.String()}, Nodes: []*onnxpb.NodeProto{n},
		Obstacle: n.GetOpType() + " computes with its codes",
	}
	t := packedType(n, dtype.DType(codes.Tensor.GetDataType()))
	w.CodeType, w.Bits = t.String(), int(t.Bits())
	for i, r := range roles {
		v := x.Source(n, i)
		if v == nil || v.Tensor == nil || r.weight != roles[input].weight {
			continue
		}
		switch r.what {
		case "scale":
			w.Scale = v.Name
			n, _ := dtype.Elements(v.Tensor.GetDims())
			w.PerTensor = n == 1
		case "zero point":
			w.ZeroPoint = v.Name
		default:
			continue
		}
		w.Bytes += graph.SizeOf(v.Tensor)
	}
	return w
}

// packedType returns the type of codes whose tensor has type stored: some operators pack
// several codes into a uint8.
func packedType(n *onnxpb.NodeProto, stored dtype.DType) dtype.DType {
	if stored != dtype.Uint8 {
		return stored
	}
	bits := int64(8)
	switch n.GetOpType() {
	case "MatMulFpQ4", "MatMulBlockQuantizedFp4Weight":
		bits = 4
	case "MatMulNBitsMlp", "MatMulNBitsQkv":
		bits = graph.IntAttributeOr(n, "bits", 4)
	case "QMoE":
		bits = graph.IntAttributeOr(n, "expert_weight_bits", 4)
	}
	if t, ok := unsignedTypes[bits]; ok {
		return t
	}
	return stored
}
