package intops

import (
	"slices"
	"strings"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

var (
	decoders   = map[string]bool{"DequantizeLinear": true, graph.Contrib + ".DequantizeLinear": true}
	quantizers = map[string]bool{"QuantizeLinear": true, graph.Contrib + ".QuantizeLinear": true}
)

// products lists the operators whose integer result is decoded by a Cast and a Mul by the scales: the
// float operator, and the inputs with the codes and zero points of its factors.
var products = map[string]struct {
	product string
	zeros   int // input of the first zero point
}{
	"MatMulInteger": {"MatMul", 2},
	"ConvInteger":   {"Conv", 2},
}

// calculation describes an operator from codes to codes. An operand is the position of its
// codes, scale and zero point. result is the position of the result's scale and zero point.
type calculation struct {
	op       string
	operands [][3]int
	result   [2]int
	bias     int // codes of a bias, at the product of the scales of operands 0 and 1; 0: none
	first    int // a float input in front of the operands, from 1 on; 0: none
}

var (
	single   = [][3]int{{0, 1, 2}}
	pairwise = [][3]int{{0, 1, 2}, {3, 4, 5}}
)

// calculations lists the operators from codes to codes. Those of com.microsoft are written by
// quantize_static.
var calculations = map[string]calculation{
	"QLinearMatMul": {op: "MatMul", operands: pairwise, result: [2]int{6, 7}},
	"QLinearConv":   {op: "Conv", operands: pairwise, result: [2]int{6, 7}, bias: 8},

	graph.Contrib + ".QLinearConv":              {op: "Conv", operands: pairwise, result: [2]int{6, 7}, bias: 8},
	graph.Contrib + ".QGemm":                    {op: "Gemm", operands: pairwise, result: [2]int{7, 8}, bias: 6},
	graph.Contrib + ".QLinearAdd":               {op: "Add", operands: pairwise, result: [2]int{6, 7}},
	graph.Contrib + ".QLinearMul":               {op: "Mul", operands: pairwise, result: [2]int{6, 7}},
	graph.Contrib + ".QLinearWhere":             {op: "Where", operands: [][3]int{{1, 2, 3}, {4, 5, 6}}, result: [2]int{7, 8}, first: 1},
	graph.Contrib + ".QLinearSigmoid":           {op: "Sigmoid", operands: single, result: [2]int{3, 4}},
	graph.Contrib + ".QLinearLeakyRelu":         {op: "LeakyRelu", operands: single, result: [2]int{3, 4}},
	graph.Contrib + ".QLinearSoftmax":           {op: "Softmax", operands: single, result: [2]int{3, 4}},
	graph.Contrib + ".QLinearAveragePool":       {op: "AveragePool", operands: single, result: [2]int{3, 4}},
	graph.Contrib + ".QLinearGlobalAveragePool": {op: "GlobalAveragePool", operands: single, result: [2]int{3, 4}},
	graph.Contrib + ".QLinearReduceMean":        {op: "ReduceMean", operands: single, result: [2]int{3, 4}},
	graph.Contrib + ".QLinearConcat":            {op: "Concat", result: [2]int{0, 1}}, // and as many operands as there are
}

// completed returns the calculation of a node, completed if the operator has any number of operands.
func (c calculation) completed(n *onnxpb.NodeProto) calculation {
	if c.op == "Concat" {
		for i := 2; i+2 < len(n.Input); i += 3 {
			c.operands = append(c.operands, [3]int{i, i + 1, i + 2})
		}
	}
	return c
}

// extra are attributes of the operators on codes that the float ones do not have.
var extra = []string{"channels_last", "opset"}

// movers are the operators that pass on codes of their first input, with scale and zero point.
var movers = []string{
	"Identity", "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Gather", "GatherElements",
	"Split", "Resize", "Expand", "DepthToSpace", "SpaceToDepth", "Tile", "Concat", "Pad",
}

// codeInputs returns the inputs of a mover that are codes.
func codeInputs(n *onnxpb.NodeProto) (inputs []int) {
	switch n.GetOpType() {
	case "Concat":
		for i := range n.Input {
			inputs = append(inputs, i)
		}
		return inputs
	case "Pad":
		return []int{0, 2}
	}
	return []int{0}
}

func isMover(n *onnxpb.NodeProto) bool {
	return graph.IsStandard(n.GetDomain()) && slices.Contains(movers, n.GetOpType())
}

// internals replace operators with a float output that decode weights internally, as far as
// package recognize does not know them.
var internals map[string]func(*rewriting, *onnxpb.NodeProto)

func init() { // because of a cycle of references
	internals = map[string]func(*rewriting, *onnxpb.NodeProto){
		graph.Contrib + ".MatMulIntegerToFloat":     (*rewriting).matMulToFloat,
		graph.Contrib + ".DynamicQuantizeMatMul":    (*rewriting).dynamicMatMul,
		graph.Contrib + ".DynamicQuantizeLSTM":      (*rewriting).lstm,
		graph.Contrib + ".QAttention":               (*rewriting).attention,
		graph.Contrib + ".QEmbedLayerNormalization": (*rewriting).embedding,
	}
}

// dynamicMatMul replaces a DynamicQuantizeMatMul by a MatMul, and an Add of its bias.
func (r *rewriting) dynamicMatMul(n *onnxpb.NodeProto) {
	if w, ok := r.weight(n, 1, 2, 3, -1); ok {
		r.matMul(n, n.Input[0], w, 4)
	}
}

// matMulToFloat replaces a MatMulIntegerToFloat by a MatMul, and an Add of its bias.
func (r *rewriting) matMulToFloat(n *onnxpb.NodeProto) {
	a, ok := r.operand(n, [3]int{0, 2, 4})
	w, known := r.weight(n, 1, 3, 5, -1)
	if ok && known {
		r.matMul(n, a, w, 6)
	}
}

func (r *rewriting) matMul(n *onnxpb.NodeProto, a, b string, bias int) {
	out := n.Output[0]
	if graph.HasInput(n, bias) {
		out = r.copy.Names.Fresh(out + "_MatMul_Output")
		r.drop(n)
		r.add(r.x.Home(n).Graph, &onnxpb.NodeProto{OpType: new("Add"), Name: new(r.copy.Names.Fresh(out + "_Add")), Input: []string{out, n.Input[bias]}, Output: n.Output})
	}
	r.replaceBy(n, "MatMul", "", []string{a, b}, []string{out})
}

// lstm replaces a DynamicQuantizeLSTM, whose weights are the transposes of an LSTM's.
func (r *rewriting) lstm(n *onnxpb.NodeProto) {
	var weights []string
	for i, first := range []int{8, 10} {
		codes, scale := r.x.Source(n, 1+i), r.x.Source(n, first)
		if codes == nil || scale == nil || scale.Tensor == nil || codes.Tensor == nil || len(codes.Tensor.Dims) != 3 {
			return
		}
		w, ok := "", false
		if len(scale.Tensor.Dims) < 2 {
			w, ok = r.weight(n, 1+i, first, first+1, 0)
		} else {
			w, ok = r.columns(n, 1+i, first, first+1)
		}
		if !ok {
			return
		}
		transposed := r.copy.Names.Fresh(w + "_Transpose_Output")
		r.add(codes.Graph, &onnxpb.NodeProto{OpType: new("Transpose"), Input: []string{w}, Output: []string{transposed}, Attribute: []*onnxpb.AttributeProto{
			{Name: new("perm"), Type: onnxpb.AttributeProto_INTS.Enum(), Ints: []int64{0, 2, 1}},
		}})
		weights = append(weights, transposed)
	}
	inputs := slices.Concat(n.Input[:1], weights, n.Input[3:8])
	r.replaceBy(n, "LSTM", "", inputs, n.Output, n.Attribute...)
}

// attention replaces a QAttention by an Attention of com.microsoft.
func (r *rewriting) attention(n *onnxpb.NodeProto) {
	x, ok := r.operand(n, [3]int{0, 3, 6})
	w, known := r.weight(n, 1, 4, 7, -1)
	if ok && known {
		r.replaceBy(n, "Attention", graph.Contrib, []string{x, w, input(n, 2), input(n, 5), input(n, 8)}, n.Output, n.Attribute...)
	}
}

// embedding replaces a QEmbedLayerNormalization.
func (r *rewriting) embedding(n *onnxpb.NodeProto) {
	inputs := []string{input(n, 0), input(n, 1)}
	for i := range 5 {
		if !graph.HasInput(n, 2+i) {
			inputs = append(inputs, "")
			continue
		}
		w, ok := r.weight(n, 2+i, 8+i, 13+i, 0)
		if !ok {
			return
		}
		inputs = append(inputs, w)
	}
	r.replaceBy(n, "EmbedLayerNormalization", graph.Contrib, append(inputs, input(n, 7)), n.Output, n.Attribute...)
}

func input(n *onnxpb.NodeProto, i int) string {
	if i < len(n.Input) {
		return n.Input[i]
	}
	return ""
}

// replaceBy adds the float operator for n. It keeps the name of n without the suffixes that quantizers
// add. With the same outputs it replaces n; otherwise n stays as long as it is read.
func (r *rewriting) replaceBy(n *onnxpb.NodeProto, op, domain string, inputs, outputs []string, attrs ...*onnxpb.AttributeProto) {
	if slices.Equal(outputs, n.Output) {
		r.drop(n)
	}
	for len(inputs) > 0 && inputs[len(inputs)-1] == "" {
		inputs = inputs[:len(inputs)-1]
	}
	made := &onnxpb.NodeProto{OpType: &op, Input: inputs, Output: outputs}
	if domain != "" {
		made.Domain = &domain
	}
	switch name := strings.TrimSuffix(n.GetName(), "_quant"); {
	case name == n.GetName():
		made.Name = n.Name
	case name != "":
		made.Name = new(r.copy.Names.Fresh(name))
	}
	for _, a := range attrs {
		if !slices.Contains(extra, a.GetName()) {
			made.Attribute = append(made.Attribute, a)
		}
	}
	r.add(r.x.Home(n).Graph, made)
}
