package intops_test

import (
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/intops"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// A pattern is replaced only if each value is decoded as it was quantized.
func TestFloat(t *testing.T) {
	node := modeltest.Node
	quantize := node("DynamicQuantizeLinear", "q", "x")
	quantize.Output = []string{"q", "xs", "xz"}
	cast := node("Cast", "f", "j", modeltest.IntAttr("to", int64(dtype.Float32)))
	product := node("MatMulInteger", "j", "q b xz z")
	split := node("Split", "moved", "r")
	split.Output = []string{"moved", "unread"}
	cases := []struct {
		name  string
		nodes modeltest.Nodes
		want  []string
	}{
		{"scales first", modeltest.Nodes{quantize, product, cast, node("Mul", "t", "xs s"), node("Mul", "y", "f t")}, []string{"DequantizeLinear", "MatMul"}},
		{"one scale after the other", modeltest.Nodes{quantize, product, cast, node("Mul", "t", "f s"), node("Mul", "y", "xs t")}, []string{"DequantizeLinear", "MatMul"}},
		{"the scale of another weight's shape", modeltest.Nodes{quantize, product, cast, node("Mul", "t", "s s"), node("Mul", "y", "f t")}, nil},
		{"a scale is missing", modeltest.Nodes{quantize, product, cast, node("Mul", "y", "f s")}, nil},
		{"another zero point", modeltest.Nodes{quantize, node("MatMulInteger", "j", "q b _ z"), cast, node("Mul", "t", "xs s"), node("Mul", "y", "f t")}, nil},
		{"the integers are read too", modeltest.Nodes{quantize, product, cast, node("Mul", "t", "xs s"), node("Mul", "l", "f t"), node("Cast", "k", "j", modeltest.IntAttr("to", 1)), node("Add", "y", "l k")}, nil},
		{"a Sub of the scale", modeltest.Nodes{quantize, product, cast, node("Mul", "t", "xs s"), node("Sub", "y", "f t")}, nil},
		{"fake quantization alone", modeltest.Nodes{node("QuantizeLinear", "q", "x u"), node("DequantizeLinear", "y", "q u")}, nil},
		{"codes move", modeltest.Nodes{node("Gather", "q", "b x"), node("DequantizeLinear", "y", "q u v")}, []string{"DequantizeLinear", "Gather"}},
		{"an output that nothing reads", modeltest.Nodes{node("QuantizeLinear", "q", "x w"), node("QLinearMatMul", "r", "q w _ b s z u _"), split, node("DequantizeLinear", "y", "moved u")}, []string{"Clip", "Clip", "Constant", "Constant", "Constant", "Constant", "DequantizeLinear", "MatMul", "Split"}},
		{"another scale than was quantized with", modeltest.Nodes{node("QuantizeLinear", "q", "x u"), node("QLinearMatMul", "r", "q w _ b s z u _"), node("DequantizeLinear", "y", "r u")}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tensors := []*onnxpb.TensorProto{
				modeltest.Zeros("b", dtype.Int8, 64, 32), modeltest.Zeros("z", dtype.Int8, 32), modeltest.Floats("s", 32),
				modeltest.Floats("u"), modeltest.Zeros("v", dtype.Int8), modeltest.Zeros("w", dtype.Float32),
			}
			m, err := intops.Float(modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, c.nodes))).Graph())
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, n := range m.Graph.File.Proto.Graph.Node {
				have = append(have, graph.Operator(n))
			}
			want := c.want
			if want == nil {
				for _, n := range c.nodes {
					want = append(want, graph.Operator(n))
				}
			}
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Errorf("%v, want %v", have, want)
			}
		})
	}
}
