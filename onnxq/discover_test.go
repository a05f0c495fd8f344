package onnxq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

// node makes a node of one output. Names of inputs are separated by spaces, _ is
// none; an operator may have a domain in front.
func node(op, output, inputs string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{Output: []string{output}, Attribute: attrs}
	for name := range strings.FieldsSeq(inputs) {
		n.Input = append(n.Input, strings.Trim(name, "_"))
	}
	if i := strings.LastIndexByte(op, '.'); i >= 0 {
		n.Domain, op = new(op[:i]), op[i+1:]
	}
	n.OpType = &op
	return n
}

func stringAttr(name, v string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(v)}
}

// parameterAttr is an attribute that the call of a function gives.
func parameterAttr(name string, v *onnxpb.AttributeProto) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: v.Type, RefAttrName: new("of_the_call")}
}

// floats is a tensor of small numbers.
func floats(name string, shape ...int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype.Float32)), Dims: shape}
	for i := range shapes.Count(shape) {
		t.FloatData = append(t.FloatData, float32(i%13)-6)
	}
	return t
}

func integersTensor(name string, v ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: new(int32(onnxpb.TensorProto_INT64)), Dims: []int64{int64(len(v))}, Int64Data: v}
}

func constantNode(name string, t *onnxpb.TensorProto) *onnxpb.NodeProto {
	return node("Constant", name, "", &onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t})
}

// madeOf writes a model with inputs x and i, output y and the given contents.
func madeOf(t *testing.T, tensors []*onnxpb.TensorProto, nodes []*onnxpb.NodeProto, functions ...*onnxpb.FunctionProto) *testmodels.Model {
	t.Helper()
	typed := func(name string, of onnxpb.TensorProto_DataType) *onnxpb.ValueInfoProto {
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(of))},
		}}}
	}
	imports := []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: new(int64(17))}}
	for _, domain := range []string{graph.Contrib, "local"} {
		imports = append(imports, &onnxpb.OperatorSetIdProto{Domain: &domain, Version: new(int64(1))})
	}
	return &testmodels.Model{Proto: &onnxpb.ModelProto{
		IrVersion: new(int64(8)), OpsetImport: imports, Functions: functions,
		Graph: &onnxpb.GraphProto{
			Name: new("g"), Node: nodes, Initializer: tensors,
			Input:  []*onnxpb.ValueInfoProto{typed("x", onnxpb.TensorProto_FLOAT), typed("i", onnxpb.TensorProto_INT64)},
			Output: []*onnxpb.ValueInfoProto{typed("y", onnxpb.TensorProto_FLOAT)},
		},
	}}
}

// localFunction is local.name of opset 17.
func localFunction(name, inputs, output string, nodes ...*onnxpb.NodeProto) *onnxpb.FunctionProto {
	return &onnxpb.FunctionProto{
		Name: &name, Domain: new("local"), Input: strings.Fields(inputs), Output: []string{output}, Node: nodes,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: new(int64(17))}, {Domain: new("local"), Version: new(int64(1))}},
	}
}

type nodes = []*onnxpb.NodeProto

// How each operator's weights, and those behind other nodes, are cut.
func TestOperands(t *testing.T) {
	matMul := node("MatMul", "y", "x v")
	shape := func(v ...int64) *onnxpb.NodeProto { return constantNode("shape", integersTensor("", v...)) }
	einsum := func(equation, inputs string) nodes {
		return nodes{node("Einsum", "y", inputs, stringAttr("equation", equation))}
	}
	cases := []struct {
		name  string
		nodes nodes
		shape []int64
		axis  int
		view  []int64 // nil: the shape
		left  string  // or why it stays in float
	}{
		{"MatMul", nodes{node("MatMul", "y", "x w")}, []int64{64, 32}, 0, nil, ""},
		{"MatMul left", nodes{node("MatMul", "y", "w x")}, []int64{64, 32}, 1, nil, ""},
		{"MatMul batched", nodes{node("MatMul", "y", "x w")}, []int64{2, 3, 64, 32}, 2, nil, ""},
		{"MatMul batched left", nodes{node("MatMul", "y", "w x")}, []int64{3, 64, 32}, 2, nil, ""},
		{"MatMul vector", nodes{node("MatMul", "y", "x w")}, []int64{640}, 0, nil, ""},
		{"Gemm", nodes{node("Gemm", "y", "x w")}, []int64{64, 32}, 0, nil, ""},
		{"Gemm transB", nodes{node("Gemm", "y", "x w", intAttr("transB", 1))}, []int64{64, 32}, 1, nil, ""},
		{"Gemm A", nodes{node("Gemm", "y", "w x")}, []int64{64, 32}, 1, nil, ""},
		{"Gemm transA", nodes{node("Gemm", "y", "w x", intAttr("transA", 1))}, []int64{64, 32}, 0, nil, ""},
		{"Gemm C", nodes{node("Gemm", "y", "x x w")}, []int64{64, 32}, 0, nil, "read by Gemm:2"},
		{"Gather", nodes{node("Gather", "y", "w i")}, []int64{64, 32}, 1, nil, ""},
		{"GatherND", nodes{node("GatherND", "y", "w i")}, []int64{4, 64, 32}, 2, nil, ""},
		{"Conv", nodes{node("Conv", "y", "x w")}, []int64{16, 8, 3, 3}, 1, []int64{16, 72}, ""},
		{"ConvTranspose", nodes{node("ConvTranspose", "y", "x w")}, []int64{16, 8, 3, 3}, 0, []int64{16, 72}, ""},
		{"LSTM W", nodes{node("LSTM", "y", "x w x")}, []int64{2, 64, 24}, 2, nil, ""},
		{"LSTM R", nodes{node("LSTM", "y", "x x w")}, []int64{2, 64, 24}, 2, nil, ""},
		{"LSTM B", nodes{node("LSTM", "y", "x x x w")}, []int64{2, 64}, 0, nil, "read by LSTM:3"},
		{"GRU W", nodes{node("GRU", "y", "x w x")}, []int64{1, 48, 24}, 2, nil, ""},
		{"RNN R", nodes{node("RNN", "y", "x x w")}, []int64{1, 32, 32}, 2, nil, ""},

		{"Einsum", einsum("bk,kn->bn", "x w"), []int64{64, 32}, 0, nil, ""},
		{"Einsum left", einsum("nk,...k->...n", "w x"), []int64{64, 32}, 1, nil, ""},
		{"Einsum implicit", einsum(" bk , kn ", "x w"), []int64{64, 32}, 0, nil, ""},
		{"Einsum ellipsis", einsum("bk,...kn->...bn", "x w"), []int64{4, 64, 32}, 1, nil, ""},
		{"Einsum two sums", einsum("bhd,hdn->bn", "x w"), []int64{4, 16, 32}, 0, []int64{64, 32}, ""},
		{"Einsum two sums, last", einsum("bhd,nhd->bn", "x w"), []int64{32, 4, 16}, 1, []int64{32, 64}, ""},
		{"Einsum sums apart", einsum("bhd,hnd->bn", "x w"), []int64{4, 32, 16}, 2, nil, ""},
		{"Einsum diagonal", einsum("bi,ii->b", "x w"), []int64{32, 32}, 0, nil, `read by Einsum:1 (no matrix product: "bi,ii->b")`},
		{"Einsum elementwise", einsum("bi,bi->bi", "x w"), []int64{32, 32}, 0, nil, `read by Einsum:1 (no matrix product: "bi,bi->bi")`},
		{"Einsum summed alone", einsum("bi,ik->bi", "x w"), []int64{32, 32}, 0, nil, `read by Einsum:1 (no matrix product: "bi,ik->bi")`},
		{"Einsum of another rank", einsum("bk,kn->bn", "x w"), []int64{2, 32, 32}, 0, nil, `read by Einsum:1 (no matrix product: "bk,kn->bn")`},
		{"Einsum nonsense", einsum("b1,->-", "x w"), []int64{32, 32}, 0, nil, `read by Einsum:1 (no matrix product: "b1,->-")`},

		{"Attention", nodes{node("com.microsoft.Attention", "y", "x w")}, []int64{32, 96}, 0, nil, ""},
		{"Attention of the standard", nodes{node("Attention", "y", "x w x")}, []int64{32, 96}, 0, nil, "read by Attention:1"},
		{"EmbedLayerNormalization", nodes{node("com.microsoft.EmbedLayerNormalization", "y", "i i x w")}, []int64{64, 32}, 1, nil, ""},
		{"FusedConv", nodes{node("com.microsoft.FusedConv", "y", "x w")}, []int64{16, 8, 3, 3}, 1, []int64{16, 72}, ""},
		{"FusedGemm", nodes{node("com.microsoft.FusedGemm", "y", "x w", intAttr("transB", 1))}, []int64{64, 32}, 1, nil, ""},
		{"FusedMatMul", nodes{node("com.microsoft.FusedMatMul", "y", "x w")}, []int64{64, 32}, 0, nil, ""},
		{"FusedMatMul transB", nodes{node("com.microsoft.FusedMatMul", "y", "x w", intAttr("transB", 1))}, []int64{2, 64, 32}, 2, nil, ""},
		{"FusedMatMul transBatchB", nodes{node("com.microsoft.FusedMatMul", "y", "x w", intAttr("transBatchB", 1))}, []int64{64, 4, 32}, 0, nil, ""},
		{"TransposeMatMul transA", nodes{node("com.microsoft.TransposeMatMul", "y", "w x", intAttr("transA", 1))}, []int64{64, 32}, 0, nil, ""},
		{"MoE", nodes{node("com.microsoft.MoE", "y", "x x w _ x")}, []int64{4, 48, 32}, 2, nil, ""},
		{"MatMul of another domain", nodes{node("acme.MatMul", "y", "x w")}, []int64{64, 32}, 0, nil, "read by acme.MatMul:1"},

		{"behind Transpose", nodes{node("Transpose", "v", "w"), matMul}, []int64{32, 64}, 1, nil, ""},
		{"behind Reshape", nodes{shape(64, -1), node("Reshape", "v", "w shape"), matMul}, []int64{8, 8, 32}, 0, []int64{64, 32}, ""},
		{"behind Reshape with 0", nodes{shape(0, 32), node("Reshape", "v", "w shape"), matMul}, []int64{64, 4, 8}, 0, nil, ""},
		{"of a vector", nodes{shape(64, 32), node("Reshape", "v", "w shape"), matMul}, []int64{2048}, 0, []int64{64, 32}, ""},
		{"of sides that do not divide", nodes{shape(64, 24), node("Reshape", "v", "w shape"), matMul}, []int64{6, 256}, 0, []int64{64, 24}, ""},
		{"behind Transpose and Reshape", nodes{shape(64, 32), node("Transpose", "u", "w", intsAttr("perm", 1, 2, 0)), node("Reshape", "v", "u shape"), matMul}, []int64{32, 8, 8}, 1, []int64{32, 64}, ""},
		{"behind Flatten", nodes{node("Flatten", "v", "w", intAttr("axis", -1)), matMul}, []int64{8, 8, 32}, 0, []int64{64, 32}, ""},
		{"behind Unsqueeze", nodes{shape(-1, 0), node("Unsqueeze", "u", "w shape"), node("Squeeze", "v", "u"), matMul}, []int64{64, 32}, 0, nil, ""},
		{"behind Squeeze of an attribute", nodes{node("Squeeze", "v", "w", intsAttr("axes", 1)), matMul}, []int64{64, 1, 32}, 0, nil, ""},
		{"behind Reshape that cuts", nodes{shape(4, 384), node("Transpose", "u", "w"), node("Reshape", "v", "u shape"), matMul}, []int64{256, 6}, 0, nil, "MatMul:1: behind a Reshape that cuts across its axes"},
		{"of two axes that lie apart", nodes{shape(12, 128), node("Transpose", "u", "w"), node("Reshape", "v", "u shape"), matMul}, []int64{256, 6}, 1, nil, ""},
		{"behind Reshape of a computed shape", nodes{node("Reshape", "v", "w i"), matMul}, []int64{64, 32}, 0, nil, "MatMul:1: behind a Reshape whose shape is known only where the model runs"},
		{"behind Add", nodes{node("Add", "v", "w x"), matMul}, []int64{64, 32}, 0, nil, "read by Add:0"},
		{"twice", nodes{node("MatMul", "h", "x w"), node("Add", "y", "h w")}, []int64{64, 32}, 0, nil, "also read by Add:1"},

		{"scale", nodes{node("QuantizeLinear", "y", "x w")}, []int64{640}, 0, nil, "already quantized: scale of QuantizeLinear"},
		{"fake quantization", nodes{node("QuantizeLinear", "y", "w x")}, []int64{64, 32}, 0, nil, "already quantized: input of QuantizeLinear"},
		{"scales of MatMulNBits", nodes{node("com.microsoft.MatMulNBits", "y", "x i w")}, []int64{64, 32}, 0, nil, "already quantized: scale of MatMulNBits"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := opened(t, written(t, madeOf(t, []*onnxpb.TensorProto{floats("w", c.shape...)}, c.nodes)))
			p, err := m.Plan(Options{Block: 16, Ops: []string{"all"}})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.conv.to.weights) == 0 {
				if got := p.Tensors[0].Reason; got != c.left || c.left == "" {
					t.Errorf("left: %s, want %q", got, c.left)
				}
				return
			}
			view := c.view
			if view == nil {
				view = c.shape
			}
			if got := p.conv.to.weights[0].d.choice.Operand; c.left != "" || got.Axis != c.axis || !slices.Equal(got.View, view) {
				t.Errorf("axis %d of %v, want %d of %v%s", got.Axis, got.View, c.axis, view, c.left)
			}
		})
	}
}

// Weights in functions, and of their callers.
func TestFunctions(t *testing.T) {
	matMul := node("MatMul", "y", "x v")
	big := floats("w", 64, 32)
	transB := intAttr("transB", 1)
	cases := []struct {
		name      string
		tensors   []*onnxpb.TensorProto
		nodes     nodes
		functions []*onnxpb.FunctionProto
		weight    string
		axis      int
		left      string
		opset     int64 // of the first function afterwards
	}{
		{"argument", []*onnxpb.TensorProto{big}, nodes{node("local.f", "y", "x w")},
			[]*onnxpb.FunctionProto{localFunction("f", "x v", "y", matMul)}, "w", 0, "", 17},
		{"argument of an argument, turned", []*onnxpb.TensorProto{big}, nodes{node("local.f", "y", "x w")},
			[]*onnxpb.FunctionProto{
				localFunction("f", "x u", "y", node("local.turned", "v", "u"), matMul),
				localFunction("turned", "a", "b", node("Transpose", "b", "a")),
			}, "w", 1, "", 17},
		{"argument that is also added", []*onnxpb.TensorProto{big}, nodes{node("local.f", "y", "x w")},
			[]*onnxpb.FunctionProto{localFunction("f", "x v", "y", node("MatMul", "m", "x v"), node("Add", "y", "m v"))}, "w", 0, "also read by Add:1", 17},
		{"argument that nothing reads", []*onnxpb.TensorProto{big}, nodes{node("local.f", "y", "x w")},
			[]*onnxpb.FunctionProto{localFunction("f", "x v", "y", node("Relu", "y", "x"))}, "w", 0, "nothing reads it", 17},
		{"attribute of the call", []*onnxpb.TensorProto{big}, nodes{node("local.f", "y", "x w")},
			[]*onnxpb.FunctionProto{localFunction("f", "x v", "y", node("Gemm", "y", "x v", parameterAttr("transB", transB)))}, "w", 0,
			"Gemm:1: Gemm's transB is a parameter of the function that it is in", 17},
		{"constant", nil, nodes{node("local.f", "y", "x")},
			[]*onnxpb.FunctionProto{localFunction("f", "x", "y", constantNode("v", big), matMul)}, "local.f/v", 0, "", 21},
		{"constant that is returned", nil, nodes{node("local.f", "v", ""), matMul},
			[]*onnxpb.FunctionProto{localFunction("f", "", "k", constantNode("k", big))}, "local.f/k", 0, "", 21},
		{"constant that is the graph's output", nil, nodes{node("local.f", "y", "")},
			[]*onnxpb.FunctionProto{localFunction("f", "", "k", constantNode("k", big))}, "local.f/k", 0, "graph output", 17},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := opened(t, written(t, madeOf(t, c.tensors, c.nodes, c.functions...)))
			p, err := in.Plan(Options{Block: 32})
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(p.Tensors, func(t TensorPlan) bool { return t.Name == c.weight })
			if at < 0 {
				t.Fatalf("%s is not listed: %v", c.weight, p.Tensors)
			}
			got := p.Tensors[at]
			if got.Reason != c.left || c.left == "" && (got.Decision != Quantize || got.Axis != c.axis) {
				t.Fatalf("%+v, want axis %d %s", got, c.axis, c.left)
			}
			weightIsLeft := strings.HasPrefix(c.left, "also") || strings.HasPrefix(c.left, "Gemm")
			if _, err = in.Plan(Options{Block: 32, Strict: true}); errors.Is(err, ErrStrict) != weightIsLeft {
				t.Errorf("strict: %v", err)
			}
			out := filepath.Join(t.TempDir(), "out.onnx")
			if _, err := p.Convert(context.Background(), out); err != nil {
				t.Fatal(err)
			}
			if version, _ := opset.Of(opened(t, out).file.Proto.Functions[0].OpsetImport); version != c.opset {
				t.Errorf("the function has opset %d, want %d", version, c.opset)
			}
		})
	}
}

// Functions that call others several times are followed once each.
func TestManyCalls(t *testing.T) {
	const depth = 60
	functions := []*onnxpb.FunctionProto{localFunction("f0", "x v", "y", node("MatMul", "y", "x v"))}
	for i := range depth {
		f := fmt.Sprintf("local.f%d", i)
		functions = append(functions, localFunction(fmt.Sprintf("f%d", i+1), "x v", "y",
			node(f, "a", "x v"), node(f, "b", "a v"), node("Add", "y", "a b")))
	}
	m := opened(t, written(t, madeOf(t, []*onnxpb.TensorProto{floats("w", 64, 64)}, nodes{node(fmt.Sprintf("local.f%d", depth), "y", "x w")}, functions...)))
	p, err := m.Plan(Options{Block: 32})
	if err != nil || len(p.conv.to.weights) != 1 {
		t.Fatalf("%v, %d weights", err, len(p.conv.to.weights))
	}
}

func TestRecursionIsRefused(t *testing.T) {
	path := written(t, madeOf(t, []*onnxpb.TensorProto{floats("w", 64, 64)}, nodes{node("local.f", "y", "x w")},
		localFunction("f", "x v", "y", node("local.g", "y", "x v")), localFunction("g", "x v", "y", node("local.f", "y", "x v"))))
	if _, err := Open(path); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("error %v", err)
	}
}

// Nodes that lack inputs or outputs are refused, or left as they are.
func TestMalformedNodes(t *testing.T) {
	without := func(n *onnxpb.NodeProto) *onnxpb.NodeProto {
		n.Output = nil
		return n
	}
	product := node("MatMul", "y", "x w")
	for _, test := range []struct {
		nodes   nodes
		refused bool
	}{
		{nodes{product, without(node("Gemm", "", "x w c"))}, true},
		{nodes{product, without(node("Identity", "", "i"))}, true},
		{nodes{product, without(node("com.microsoft.MatMulNBits", "", "x w w _ _ w"))}, true},
		{nodes{product, without(node("local.print", "", "i"))}, false},
		{nodes{node("Gather", "y", "w")}, false},
		{nodes{node("MatMul", "y", "_ w")}, false},
		{nodes{node("MatMul", "p", "x w"), node("Add", "y", "x x p")}, false},
		{nodes{node("MatMul", "p", "x w"), node("Add", "y", "p")}, false},
	} {
		in := written(t, madeOf(t, []*onnxpb.TensorProto{floats("w", 64, 64), floats("c", 2, 64)}, test.nodes))
		for _, style := range []spec.Style{spec.DQ, spec.NBits} {
			out := filepath.Join(t.TempDir(), "out.onnx")
			_, err := Convert(context.Background(), in, out, Options{Bits: 8, Block: 32, Ops: reach.KnownOps, Style: style})
			if (err != nil) != test.refused || err != nil && !errors.Is(err, ErrModel) {
				t.Errorf("%v, style %s: error %v", test.nodes, style, err)
			}
		}
	}
}

// A chain of nodes that is too long to follow ends somewhere, not the program.
func TestLongChain(t *testing.T) {
	list := nodes{node("Identity", "v0", "w")}
	for i := range 5000 {
		list = append(list, node("Identity", fmt.Sprintf("v%d", i+1), fmt.Sprintf("v%d", i)))
	}
	list = append(list, node("MatMul", "y", "x v5000"))
	m := opened(t, written(t, madeOf(t, []*onnxpb.TensorProto{floats("w", 64, 64)}, list)))
	p, err := m.Plan(Options{Block: 32})
	if err != nil || p.Tensors[0].Reason != "read by Identity:0" {
		t.Errorf("%v, %+v", err, p.Tensors[0])
	}
}

// Floats that are stored in other ways, or are no values, are listed and left.
func TestUnusualFloats(t *testing.T) {
	source := madeOf(t, []*onnxpb.TensorProto{floats("w", 64, 32)}, nodes{
		node("Constant", "list", "", &onnxpb.AttributeProto{Name: new("value_floats"), Type: onnxpb.AttributeProto_FLOATS.Enum(), Floats: make([]float32, 32)}),
		node("MatMul", "a", "x w"), node("Add", "b", "a list"), node("MatMul", "c", "b sparse"),
		node("acme.Table", "y", "c", &onnxpb.AttributeProto{Name: new("rows"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: floats("rows", 8, 8)}),
	})
	source.Proto.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{
		Values: floats("sparse", 3), Indices: integersTensor("", 1, 5, 9), Dims: []int64{32, 16},
	}}
	source.Proto.TrainingInfo = []*onnxpb.TrainingInfoProto{{Algorithm: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{floats("rate", 4)}}}}
	m := opened(t, written(t, source))
	p, err := m.Plan(Options{Block: 32})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, tp := range p.Tensors {
		got[tp.Name] = tp.Reason
	}
	for name, reason := range map[string]string{
		"w":      "",
		"list":   "read by Add:1",
		"sparse": "stored as a sparse tensor",
		`Table node "y": attribute "rows", tensor "rows"`: "in an attribute",
		`training: initializer "rate"`:                    "in training_info",
	} {
		if r, ok := got[name]; r != reason || !ok {
			t.Errorf("%s: %q, want %q", name, r, reason)
		}
	}
	if len(got) != 5 {
		t.Errorf("listed: %v", got)
	}
	if _, err := m.Plan(Options{Block: 32, Strict: true}); !errors.Is(err, ErrStrict) || !strings.Contains(err.Error(), "sparse") {
		t.Errorf("strict: %v", err)
	}
}

// What is quantized already is left, to the byte.
func TestConvertTwice(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		if kind.Name == "nan" {
			continue
		}
		for _, opts := range []Options{
			{Block: 32}, {Bits: 8, Block: spec.PerChannel, ZeroPoint: true}, {Block: 16, Style: spec.NBits}, {Format: spec.FP8E4M3},
			{Format: spec.NVFP4, Target: spec.ORT}, {Format: spec.MXFP8, Target: spec.ORT}, {Format: spec.NF4}, {Block: 32, Style: spec.QDQ},
		} {
			opts.Ops = []string{"all"}
			t.Run(fmt.Sprintf("%s/%d%s/%s", kind.Name, opts.Bits, opts.Format, opts.Style), func(t *testing.T) {
				once, twice := filepath.Join(t.TempDir(), "m.onnx"), filepath.Join(t.TempDir(), "m.onnx")
				if _, err := Convert(context.Background(), built(t, kind.Name), once, opts); err != nil {
					t.Fatal(err)
				}
				r, err := Convert(context.Background(), once, twice, opts)
				if err != nil {
					t.Fatal(err)
				}
				a, err := os.ReadFile(once)
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(twice)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Tensors) != 0 || !bytes.Equal(a, b) {
					t.Errorf("%d weights are quantized again; the bytes are equal: %v", len(r.Tensors), bytes.Equal(a, b))
				}
			})
		}
	}
}

// So it is in functions, with codes that are looked up in a table too.
func TestConvertFunctionTwice(t *testing.T) {
	for _, format := range []spec.Format{spec.Int4, spec.NF4} {
		in := written(t, madeOf(t, nil, nodes{node("local.f", "y", "x")},
			localFunction("f", "x", "y", constantNode("v", floats("w", 256, 64)), node("MatMul", "y", "x v"))))
		opts := Options{Format: format, Ops: []string{"all"}}
		once := filepath.Join(t.TempDir(), "m.onnx")
		if r, err := Convert(context.Background(), in, once, opts); err != nil || len(r.Tensors) != 1 {
			t.Fatalf("%s: %v", format, err)
		}
		p, err := opened(t, once).Plan(opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range p.Tensors {
			if w.Decision == Quantize {
				t.Errorf("%s: %s is quantized again", format, w.Name)
			}
		}
	}
}

// A value within a graph may be called like what the node makes that holds it.
func TestNamesOfInnerValues(t *testing.T) {
	inner := body("then_branch", nil, node("MatMul", "y", "x w"))
	m := madeOf(t, []*onnxpb.TensorProto{floats("w", 64, 32)}, nodes{
		node("If", "y", "c", inner, body("else_branch", nil, node("Identity", "y", "x"))),
		node("Cast", "c", "i", intAttr("to", int64(onnxpb.TensorProto_BOOL))), // out of order
	})
	p, err := opened(t, written(t, m)).Plan(Options{Block: 32})
	if err != nil {
		t.Fatal(err)
	}
	if p.Tensors[0].Decision != Quantize {
		t.Errorf("%+v", p.Tensors[0])
	}

	inner.G.Node[0].Input[1] = "d" // a cycle after all
	m.Proto.Graph.Node[1].Output[0], m.Proto.Graph.Node[1].Input[0] = "d", "y"
	m.Proto.Graph.Node[0].Input[0] = "i"
	if _, err := Open(written(t, m)); err == nil || !strings.Contains(err.Error(), "cycle") {
		t.Error(err)
	}
}
