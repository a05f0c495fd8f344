package discover_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
	"onnxquant/internal/reach"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

type nodes = []*onnxpb.NodeProto

// Short names for tables of models.
var (
	node, constantNode, localFunction = modeltest.Node, modeltest.ConstantNode, modeltest.Function
	intAttr, intsAttr, stringAttr     = modeltest.IntAttr, modeltest.IntsAttr, modeltest.StringAttr
	floats, integers                  = modeltest.Floats, modeltest.Integers
)

// parameterAttr is an attribute that takes its value from the call of a function.
func parameterAttr(name string, v *onnxpb.AttributeProto) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: v.Type, RefAttrName: new("of_the_call")}
}

// Weights of each operator are cut along the right axis, also behind other nodes.
func TestOperands(t *testing.T) {
	matMul := node("MatMul", "y", "x v")
	shape := func(v ...int64) *onnxpb.NodeProto { return constantNode("shape", integers("", v...)) }
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
			m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{floats("w", c.shape...)}, c.nodes)))
			p, err := m.Plan(onnxq.Options{Block: 16, Ops: []string{"all"}})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Stages().Weights) == 0 {
				if got := p.Tensors[0].Reason; got != c.left || c.left == "" {
					t.Errorf("left: %s, want %q", got, c.left)
				}
				return
			}
			view := c.view
			if view == nil {
				view = c.shape
			}
			if got := p.Stages().Weights[0].Choice.Operand; c.left != "" || got.Axis != c.axis || !slices.Equal(got.View, view) {
				t.Errorf("axis %d of %v, want %d of %v%s", got.Axis, got.View, c.axis, view, c.left)
			}
		})
	}
}

// Weights in functions and in their callers are found.
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
		{"argument of an argument, transposed", []*onnxpb.TensorProto{big}, nodes{node("local.f", "y", "x w")},
			[]*onnxpb.FunctionProto{
				localFunction("f", "x u", "y", node("local.transposed", "v", "u"), matMul),
				localFunction("transposed", "a", "b", node("Transpose", "b", "a")),
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
			in := modeltest.Open(t, modeltest.Write(t, modeltest.Model(c.tensors, c.nodes, c.functions...)))
			p, err := in.Plan(onnxq.Options{Block: 32})
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(p.Tensors, func(t onnxq.TensorPlan) bool { return t.Name == c.weight })
			if at < 0 {
				t.Fatalf("%s is not listed: %v", c.weight, p.Tensors)
			}
			got := p.Tensors[at]
			if got.Reason != c.left || c.left == "" && (got.Decision != onnxq.Quantize || got.Axis != c.axis) {
				t.Fatalf("%+v, want axis %d %s", got, c.axis, c.left)
			}
			weightIsLeft := strings.HasPrefix(c.left, "also") || strings.HasPrefix(c.left, "Gemm")
			if _, err = in.Plan(onnxq.Options{Block: 32, Strict: true}); errors.Is(err, onnxq.ErrStrict) != weightIsLeft {
				t.Errorf("strict: %v", err)
			}
			out := filepath.Join(t.TempDir(), "out.onnx")
			if _, err := p.Convert(context.Background(), out); err != nil {
				t.Fatal(err)
			}
			if version, _ := opset.Of(modeltest.Open(t, out).Graph().File.Proto.Functions[0].OpsetImport); version != c.opset {
				t.Errorf("the function has opset %d, want %d", version, c.opset)
			}
		})
	}
}

// Nodes that lack inputs or outputs are refused or left unchanged.
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
		in := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{floats("w", 64, 64), floats("c", 2, 64)}, test.nodes))
		for _, style := range []spec.Style{spec.DQ, spec.NBits} {
			out := filepath.Join(t.TempDir(), "out.onnx")
			_, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Bits: 8, Block: 32, Ops: reach.KnownOps, Style: style, AllowFallback: true})
			if (err != nil) != test.refused || err != nil && !errors.Is(err, onnxq.ErrModel) {
				t.Errorf("%v, style %s: error %v", test.nodes, style, err)
			}
		}
	}
}

// A node with more inputs than its operator has, or with an overload, is not a known reader.
func TestUnknownReaders(t *testing.T) {
	overloaded := node("MatMul", "y", "x w")
	overloaded.Overload = new("other")
	for _, n := range []*onnxpb.NodeProto{overloaded, node("MatMul", "y", "x w x"), node("Gather", "y", "w i x"), node("Gemm", "y", "x w c x")} {
		in := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{floats("w", 64, 64), floats("c", 64)}, nodes{n}))
		out := filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, in, out, onnxq.Options{Block: 32, Ops: reach.KnownOps, Style: spec.NBits, AllowFallback: true})
		made := modeltest.Open(t, out).Graph().File.Proto.Graph.Node
		if last := made[len(made)-1]; last.GetOpType() != n.GetOpType() || len(last.Input) != len(n.Input) {
			t.Errorf("%v became %v", n, last)
		}
	}
}

// Floats that are stored in other ways, or are not values, are listed and stay unchanged.
func TestUnusualFloats(t *testing.T) {
	source := modeltest.Model([]*onnxpb.TensorProto{floats("w", 64, 32)}, nodes{
		node("Constant", "list", "", &onnxpb.AttributeProto{Name: new("value_floats"), Type: onnxpb.AttributeProto_FLOATS.Enum(), Floats: make([]float32, 32)}),
		node("MatMul", "a", "x w"), node("Add", "b", "a list"), node("MatMul", "c", "b sparse"),
		node("acme.Table", "y", "c", &onnxpb.AttributeProto{Name: new("rows"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: floats("rows", 8, 8)}),
	})
	source.Proto.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{
		Values: floats("sparse", 3), Indices: integers("", 1, 5, 9), Dims: []int64{32, 16},
	}}
	source.Proto.TrainingInfo = []*onnxpb.TrainingInfoProto{{Algorithm: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{floats("rate", 4)}}}}
	m := modeltest.Open(t, modeltest.Write(t, source))
	p, err := m.Plan(onnxq.Options{Block: 32})
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
	if _, err := m.Plan(onnxq.Options{Block: 32, Strict: true}); !errors.Is(err, onnxq.ErrStrict) || !strings.Contains(err.Error(), "sparse") {
		t.Errorf("strict: %v", err)
	}
}
