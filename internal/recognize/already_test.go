package recognize_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/form"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/diff"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// Operators that compute with codes: their weights are listed, their float tensors
// told apart, and conversions of any kind change nothing.
func TestCodesThatOperatorsRead(t *testing.T) {
	const f32, i8, u8, i32 = dtype.Float32, dtype.Int8, dtype.Uint8, dtype.Int32
	type part struct {
		name  string
		dtype dtype.DType
		shape []int64
	}
	codes, scale, zero := part{"b", i8, []int64{64, 32}}, part{"s", f32, []int64{32}}, part{"z", i8, []int64{32}}
	bias := part{"c", f32, []int64{32}}
	xs, xz := part{"xs", f32, nil}, part{"xz", u8, nil}
	cases := []struct {
		op, inputs string
		parts      []part
		attrs      []*onnxpb.AttributeProto
		bits       int
		bytes      int64
	}{
		{"QLinearMatMul", "x xs xz b s z xs xz", []part{codes, scale, zero, xs, xz}, nil, 8, 64*32 + 4*32 + 32},
		{"QLinearConv", "x xs xz b s z xs xz", []part{{"b", i8, []int64{32, 2, 3, 3}}, scale, zero, xs, xz}, nil, 8, 32*2*9 + 4*32 + 32},
		{"MatMulInteger", "x b xz z", []part{codes, zero, xz}, nil, 8, 64*32 + 32},
		{"MatMulInteger", "b x z xz", []part{codes, zero, xz}, nil, 8, 64*32 + 32},
		{"ConvInteger", "x b", []part{{"b", u8, []int64{32, 2, 3, 3}}}, nil, 8, 32 * 2 * 9},
		{"com.microsoft.MatMulIntegerToFloat", "x b xs s xz z c", []part{codes, scale, zero, bias, xs, xz}, nil, 8, 64*32 + 4*32 + 32},
		{"com.microsoft.DynamicQuantizeMatMul", "x b s z c", []part{codes, scale, zero, bias}, nil, 8, 64*32 + 4*32 + 32},
		{"com.microsoft.QGemm", "x xs xz b s z d xs xz", []part{codes, scale, zero, {"d", i32, []int64{32}}, xs, xz}, nil, 8, 64*32 + 4*32 + 32},
		{"com.microsoft.QAttention", "x b c xs s _ xz z", []part{codes, scale, zero, bias, xs, xz}, nil, 8, 64*32 + 4*32 + 32},
		{"com.microsoft.MatMulFpQ4", "x b", []part{{"b", u8, []int64{1024}}}, nil, 4, 1024},
		{"com.microsoft.QMoE", "x x b s _ _ _", []part{{"b", u8, []int64{4, 32, 32}}, {"s", f32, []int64{4, 32}}}, nil, 4, 4*32*32 + 4*4*32},
		{"com.microsoft.QMoE", "x x b s _ _ _", []part{{"b", u8, []int64{4, 32, 32}}, {"s", f32, []int64{4, 32}}},
			[]*onnxpb.AttributeProto{form.IntAttr("expert_weight_bits", 8)}, 8, 4*32*32 + 4*4*32},
	}
	for _, c := range cases {
		t.Run(c.op, func(t *testing.T) {
			var tensors []*onnxpb.TensorProto
			for _, p := range c.parts {
				tensors = append(tensors, modeltest.Zeros(p.name, p.dtype, p.shape...))
			}
			again := modeltest.Node(c.op, "again", c.inputs, c.attrs...)
			in := modeltest.Write(t, modeltest.Model(tensors, modeltest.Nodes{modeltest.Node(c.op, "y", c.inputs, c.attrs...), again}))
			m := modeltest.Open(t, in)
			found := recognize.Weights(m.Graph())
			if len(found) != 1 {
				t.Fatalf("%d weights", len(found))
			}
			w := found[0]
			op := c.op[strings.LastIndexByte(c.op, '.')+1:]
			if w.Name != "b" || w.Codes != "b" || w.Form != op || w.Bits != c.bits || w.Bytes != c.bytes || len(w.Consumers) != 2 || w.Obstacle == "" {
				t.Errorf("%+v", w)
			}
			if err := w.Read(make([]float32, 1), 0); err == nil {
				t.Error("it can be read")
			}
			p, err := m.Plan(onnxq.Options{Ops: []string{"all"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, tensor := range p.Tensors {
				if !strings.HasPrefix(tensor.Reason, recognize.Already) {
					t.Errorf("%s: %s", tensor.Name, tensor.Reason)
				}
			}

			out := filepath.Join(t.TempDir(), "out.onnx")
			if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Ops: []string{"all"}}); err != nil {
				t.Fatal(err)
			}
			checkEqual(t, in, out)
			for _, rewrite := range []func() (*restyle.Report, error){
				func() (*restyle.Report, error) {
					return restyle.Dequantize(context.Background(), in, out, restyle.Options{})
				},
				func() (*restyle.Report, error) {
					return restyle.Restyle(context.Background(), in, out, spec.DQ, restyle.Options{})
				},
			} {
				if op == "DynamicQuantizeMatMul" {
					break // its input is float: Dequantize makes it a MatMul
				}
				r, err := rewrite()
				if err != nil {
					t.Fatal(err)
				}
				why := op + " computes with its codes"
				if op == "QMoE" {
					why = "codes and scales are not constant" // it lacks fc2
				}
				if len(r.Weights) != 1 || r.Weights[0].Changed || r.Weights[0].Reason != why {
					t.Errorf("%+v", r.Weights)
				}
				checkEqual(t, in, out)
			}
		})
	}
}

func checkEqual(t *testing.T, a, b string) {
	t.Helper()
	d, err := diff.Models(context.Background(), modeltest.Open(t, a), modeltest.Open(t, b), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Equal {
		t.Errorf("%v", d.Changes)
	}
}

// Weights of functions are listed too, and unfolded there. Codes that operators
// compute with stay.
func TestQuantizedWeightsOfFunctions(t *testing.T) {
	branch := modeltest.GraphAttr("then_branch", nil, modeltest.ConstantNode("u", modeltest.Floats("u", 64, 32)), modeltest.Node("MatMul", "n", "m u"))
	in := modeltest.Write(t, modeltest.Model(nil, modeltest.Nodes{modeltest.Node("local.f", "y", "x")},
		modeltest.Function("f", "x", "y", modeltest.ConstantNode("v", modeltest.Floats("w", 256, 64)), modeltest.ConstantNode("idle", modeltest.Floats("idle", 2)), modeltest.Node("MatMul", "m", "x v"),
			modeltest.Node("If", "o", "x", branch, modeltest.GraphAttr("else_branch", nil, modeltest.Node("Identity", "e", "m"))),
			modeltest.ConstantNode("b", modeltest.Zeros("b", dtype.Int8, 64, 32)), modeltest.Node("MatMulInteger", "y", "o b"))))
	once := filepath.Join(t.TempDir(), "m.onnx")
	r, err := onnxq.Convert(context.Background(), in, once, onnxq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*recognize.Weight{}
	for _, w := range recognize.Weights(modeltest.Open(t, once).Graph()) {
		found[w.Name] = w
	}
	if len(found) != 3 || len(r.Tensors) != 2 || found["local.f/b"].Form != "MatMulInteger" {
		t.Fatalf("%v", found)
	}
	before := modeltest.Open(t, in)
	for _, w := range r.Tensors {
		if found[w.Name] == nil {
			t.Fatalf("%s is not found", w.Name)
		}
		modeltest.CheckErrors(t, modeltest.Numbers(t, before, w.Name), found[w.Name], w)
	}

	float := filepath.Join(t.TempDir(), "m.onnx")
	back, err := restyle.Dequantize(context.Background(), once, float, restyle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := nodesInFunctions(modeltest.Open(t, float)), nodesInFunctions(before); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	match, err := compare.MatchWeights(context.Background(), before, modeltest.Open(t, float), back, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(match.Problems) > 0 || len(match.Weights) != 2 || match.Weights[0].SQNR > 40 || match.Weights[0].CodeType != "INT4" {
		t.Errorf("%+v", match)
	}

	styled := filepath.Join(t.TempDir(), "m.onnx")
	if _, err := restyle.Restyle(context.Background(), once, styled, spec.NBits, restyle.Options{}); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, once, styled)
}

// nodesInFunctions lists the values that nodes of functions make.
func nodesInFunctions(m *onnxq.Model) string {
	var made []string
	for _, f := range m.Graph().File.Proto.Functions {
		graph.WalkBody(f.Node, func(n *onnxpb.NodeProto) { made = append(made, n.GetOpType()+" "+n.Output[0]) })
	}
	slices.Sort(made)
	return strings.Join(made, ", ")
}
