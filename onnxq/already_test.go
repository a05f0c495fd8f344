package onnxq

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Operators that compute with codes: their weights are listed, their float tensors
// told apart, and conversions of any kind change nothing.
func TestCodesThatOperatorsRead(t *testing.T) {
	const f32, i8, u8, i32 = modelfile.Float32, modelfile.Int8, modelfile.Uint8, modelfile.Int32
	type part struct {
		name  string
		dtype modelfile.DType
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
		{"com.microsoft.MatMulBnb4", "x b s", []part{{"b", u8, []int64{1024}}, {"s", f32, []int64{32}}},
			[]*onnxpb.AttributeProto{intAttr("K", 64), intAttr("N", 32), intAttr("block_size", 64), intAttr("quant_type", 1)}, 4, 1024 + 4*32},
		{"com.microsoft.QMoE", "x x b s _ _ _", []part{{"b", u8, []int64{4, 32, 32}}, {"s", f32, []int64{4, 32}}}, nil, 4, 4*32*32 + 4*4*32},
		{"com.microsoft.QMoE", "x x b s _ _ _", []part{{"b", u8, []int64{4, 32, 32}}, {"s", f32, []int64{4, 32}}},
			[]*onnxpb.AttributeProto{intAttr("expert_weight_bits", 8)}, 8, 4*32*32 + 4*4*32},
	}
	for _, c := range cases {
		t.Run(c.op, func(t *testing.T) {
			var tensors []*onnxpb.TensorProto
			for _, p := range c.parts {
				tensors = append(tensors, zeros(p.name, p.dtype, p.shape...))
			}
			again := node(c.op, "again", c.inputs, c.attrs...)
			in := written(t, madeOf(t, tensors, nodes{node(c.op, "y", c.inputs, c.attrs...), again}))
			m := opened(t, in)
			found := m.QuantizedWeights()
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
			p, err := m.Plan(Options{Ops: []string{"all"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, tensor := range p.Tensors {
				if !strings.HasPrefix(tensor.Reason, already) {
					t.Errorf("%s: %s", tensor.Name, tensor.Reason)
				}
			}

			out := filepath.Join(t.TempDir(), "out.onnx")
			if _, err := Convert(context.Background(), in, out, Options{Ops: []string{"all"}}); err != nil {
				t.Fatal(err)
			}
			checkEqual(t, in, out)
			for _, rewrite := range []func() (*RewriteReport, error){
				func() (*RewriteReport, error) {
					return Dequantize(context.Background(), in, out, RewriteOptions{})
				},
				func() (*RewriteReport, error) {
					return Restyle(context.Background(), in, out, DQ, RewriteOptions{})
				},
			} {
				r, err := rewrite()
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Weights) != 1 || r.Weights[0].Changed || r.Weights[0].Reason != op+" computes with its codes" {
					t.Errorf("%+v", r.Weights)
				}
				checkEqual(t, in, out)
			}
		})
	}
}

func checkEqual(t *testing.T, a, b string) {
	t.Helper()
	d, err := Diff(context.Background(), opened(t, a), opened(t, b))
	if err != nil {
		t.Fatal(err)
	}
	if !d.Equal {
		t.Errorf("%v", d.Changes)
	}
}

// Weights of functions are listed too, and nothing replaces them.
func TestQuantizedWeightsOfFunctions(t *testing.T) {
	in := written(t, madeOf(t, nil, nodes{node("local.f", "y", "x")},
		localFunction("f", "x", "y", constantNode("v", floats("w", 256, 64)), node("MatMul", "m", "x v"),
			constantNode("b", zeros("b", modelfile.Int8, 64, 32)), node("MatMulInteger", "y", "m b"))))
	once := filepath.Join(t.TempDir(), "m.onnx")
	if _, err := Convert(context.Background(), in, once, Options{}); err != nil {
		t.Fatal(err)
	}
	found := opened(t, once).QuantizedWeights()
	if len(found) != 2 || found[0].Form != "DequantizeLinear" || found[0].Obstacle != "it is in a function" || found[0].Bits != 4 || found[1].Form != "MatMulInteger" {
		t.Errorf("%v", found)
	}
	float := filepath.Join(t.TempDir(), "m.onnx")
	if _, err := Dequantize(context.Background(), once, float, RewriteOptions{}); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, once, float)
}
