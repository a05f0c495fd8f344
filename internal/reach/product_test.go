package reach_test

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/modeltest"
)

// A product is described as it is after the fusions that ONNX Runtime does first.
func TestProductOf(t *testing.T) {
	node, floats := modeltest.Node, modeltest.Floats
	gemm := func(output, inputs string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
		return node("Gemm", output, inputs, attrs...)
	}
	gemmOf := func(c target.Addend) target.Product { return target.Product{Gemm: true, C: c} }
	fill := func(name string, v float32, shape ...int64) *onnxpb.TensorProto {
		t := floats(name, shape...)
		t.FloatData[0] = v
		return t
	}
	turn, dropout := modeltest.IntsAttr("perm", 1, 0), node("Dropout", "q", "p")
	dropout.Output = append(dropout.Output, "mask")
	for _, c := range []struct {
		name  string
		nodes nodes // they read a, which has the axes b and 64
		want  target.Product
		other string
	}{
		{"MatMul", nodes{node("MatMul", "y", "a w")}, target.Product{}, ""},
		{"bias", nodes{node("MatMul", "p", "a w"), node("Add", "y", "p vector")}, gemmOf(target.Bias), ""},
		{"row", nodes{node("MatMul", "p", "a w"), node("Add", "y", "row p")}, gemmOf(target.Matrix), ""},
		{"scalar", nodes{node("MatMul", "p", "a w"), node("Add", "y", "p scalar")}, target.Product{}, ""},
		{"residual", nodes{node("MatMul", "p", "a w"), node("Add", "y", "p a")}, gemmOf(target.Matrix), ""},
		{"residual behind a Cast to its type", nodes{node("MatMul", "p", "a w"), node("Cast", "c", "p", modeltest.IntAttr("to", 1)), node("Add", "y", "c a")}, gemmOf(target.Matrix), ""},
		{"residual behind a Cast", nodes{node("MatMul", "p", "a w"), node("Cast", "c", "p", modeltest.IntAttr("to", 10)), node("Add", "y", "c a")}, target.Product{}, ""},
		{"residual behind what changes nothing", nodes{node("MatMul", "p", "a w"), node("Add", "q", "none p"), node("Sub", "r", "q none"), node("Mul", "s", "r one"), node("Div", "t", "s one"), node("Add", "y", "t a")}, gemmOf(target.Matrix), ""},
		{"residual behind a reciprocal", nodes{node("MatMul", "p", "a w"), node("Div", "q", "one p"), node("Add", "y", "q a")}, target.Product{}, ""},
		{"residual behind an axis more", nodes{node("MatMul", "p", "a w"), node("Mul", "q", "p axes"), node("Add", "y", "q a")}, target.Product{}, ""},
		{"residual behind Expand and Slice", nodes{node("MatMul", "p", "a w"), node("Expand", "q", "p ones"), node("Slice", "r", "q zero most"), node("Add", "y", "r a")}, gemmOf(target.Matrix), ""},
		{"residual behind an Expand to three axes", nodes{node("MatMul", "p", "a w"), node("Expand", "q", "p more"), node("Add", "y", "q a")}, target.Product{}, ""},
		{"residual behind a part", nodes{node("MatMul", "p", "a w"), node("Slice", "q", "p zero ones"), node("Add", "y", "q a")}, target.Product{}, ""},
		{"residual of something", nodes{node("MatMul", "p", "a w"), node("Add", "y", "p x")}, target.Product{C: target.UnknownAddend}, ""},
		{"residual, read twice", nodes{node("MatMul", "p", "a w"), node("Add", "q", "p a"), node("Add", "y", "p q")}, target.Product{}, ""},
		{"residual of three axes", nodes{node("Unsqueeze", "u", "a zero"), node("Reshape", "r", "u three"), node("MatMul", "p", "r w"), node("Add", "y", "p r")}, target.Product{}, ""},
		{"Gemm and Sum", nodes{gemm("p", "a w"), node("Sum", "y", "a p")}, gemmOf(target.Matrix), ""},
		{"Gemm and Add", nodes{gemm("p", "a w"), node("Add", "y", "a p")}, gemmOf(target.NoAddend), ""},
		{"Gemm with a row", nodes{gemm("y", "a w row")}, gemmOf(target.Matrix), ""},
		{"beta without C", nodes{gemm("y", "a w", &onnxpb.AttributeProto{Name: new("beta"), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: new(float32(2))})}, gemmOf(target.NoAddend), ""},
		{"transA", nodes{gemm("y", "a w", modeltest.IntAttr("transA", 1))}, target.Product{Gemm: true, Scaled: true}, ""},
		{"Gemm of Transpose", nodes{node("Transpose", "t", "a"), gemm("y", "t w")}, target.Product{Gemm: true, Transposed: true}, ""},
		{"Gemm of Transpose, read twice", nodes{node("Transpose", "t", "a"), gemm("y", "t w"), node("Neg", "n", "t")}, gemmOf(target.NoAddend), ""},
		{"Transpose of Gemm", nodes{gemm("p", "a w"), node("Transpose", "y", "p", modeltest.IntsAttr("perm", 1, 0))}, target.Product{Gemm: true, Transposed: true}, ""},
		{"Transpose of nothing", nodes{gemm("p", "a w"), node("Transpose", "y", "p", modeltest.IntsAttr("perm", 0, 1))}, gemmOf(target.NoAddend), ""},
		{"Relu at the end", nodes{node("MatMul", "p", "a w"), node("Relu", "y", "p")}, target.Product{}, ""},
		{"Relu", nodes{node("MatMul", "p", "a w"), node("Identity", "k", "p"), node("Relu", "r", "k"), node("Neg", "y", "r")}, target.Product{Clamped: "Relu"}, ""},
		{"Relu, read twice", nodes{node("MatMul", "p", "a w"), node("Relu", "r", "p"), node("Mul", "y", "r r")}, target.Product{}, ""},
		{"bias and Clip", nodes{node("MatMul", "p", "a w"), node("Add", "s", "p vector"), node("Clip", "r", "s"), node("Neg", "y", "r")}, target.Product{Gemm: true, C: target.Bias, Clamped: "Clip"}, ""},
		{"Relu and Clip at the end", nodes{node("MatMul", "p", "a w"), node("Relu", "r", "p"), node("Clip", "y", "r")}, target.Product{}, ""},
		{"Relu and Clip", nodes{node("MatMul", "p", "a w"), node("Relu", "r", "p"), node("Clip", "c", "r"), node("Neg", "y", "c")}, target.Product{Clamped: "Relu"}, ""},
		{"residual behind Dropout", nodes{node("MatMul", "p", "a w"), node("Dropout", "q", "p"), node("Add", "y", "q a")}, gemmOf(target.Matrix), ""},
		{"residual behind Dropout whose mask is read", nodes{node("MatMul", "p", "a w"), dropout, node("Add", "s", "q a"), node("Where", "y", "mask s a")}, target.Product{}, ""},
		{"residual behind an Expand to its shape", nodes{node("MatMul", "p", "a w"), node("Expand", "q", "p shape"), node("Add", "y", "q a")}, gemmOf(target.Matrix), ""},
		{"residual behind a Slice to 2^31", nodes{node("MatMul", "p", "a w"), node("Slice", "q", "p zero many"), node("Add", "y", "q a")}, target.Product{}, ""},
		{"residual behind two Transposes", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Identity", "r", "q"), node("Transpose", "s", "r", turn), node("Add", "y", "s a")}, gemmOf(target.Matrix), ""},
		{"residual behind two Transposes without perm", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p"), node("Transpose", "r", "q"), node("Add", "y", "r a")}, target.Product{}, ""},
		{"residual within Transposes", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Transpose", "b", "a", turn), node("Add", "r", "q b"), node("Transpose", "y", "r", turn)}, gemmOf(target.Matrix), ""},
		{"column within Transposes", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Add", "r", "q column"), node("Transpose", "y", "r", turn)}, gemmOf(target.Matrix), ""},
		{"Relu within Transposes", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Relu", "r", "q"), node("Transpose", "s", "r", turn), node("Neg", "y", "s")}, target.Product{Clamped: "Relu"}, ""},
		{"Relu within Transposes at the end", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Relu", "r", "q"), node("Transpose", "y", "r", turn)}, target.Product{}, ""},
		{"Relu behind a Transpose", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Relu", "r", "q"), node("MatMul", "s", "r x"), node("Transpose", "y", "s", turn)}, target.Product{}, ""},
		{"Relu within Transposes, the second one part of a Gemm", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Relu", "r", "q"), node("Transpose", "s", "r", turn), gemm("y", "s column")}, target.Product{Moving: true}, ""},
		{"two equal Transposes of w", nodes{node("Transpose", "t", "w", turn), node("Transpose", "u", "w", turn), node("MatMul", "p", "a t"), node("MatMul", "q", "p u"), node("Neg", "y", "q")}, target.Product{}, "it has several readers"},
		{"Neg first within Transposes", nodes{node("MatMul", "p", "a w"), node("Transpose", "q", "p", turn), node("Neg", "n", "q"), node("Relu", "r", "n"), node("Transpose", "s", "r", turn), node("Neg", "y", "s")}, target.Product{}, ""},
		{"two Transposes of Gemm", nodes{gemm("p", "a w"), node("Transpose", "q", "p", turn), node("Transpose", "r", "q"), node("Relu", "s", "r"), node("Neg", "y", "s")}, target.Product{Gemm: true, Clamped: "Relu"}, ""},
		{"residual, twice the same", nodes{node("MatMul", "p", "a w"), node("Add", "q", "p a"), node("Add", "r", "p a"), node("Sub", "y", "q r")}, gemmOf(target.Matrix), ""},
		{"residual, twice in another order", nodes{node("MatMul", "p", "a w"), node("Add", "q", "p a"), node("Add", "r", "a p"), node("Sub", "y", "q r")}, target.Product{}, ""},
		{"Relu, twice the same", nodes{node("MatMul", "p", "a w"), node("Relu", "q", "p"), node("Relu", "r", "p"), node("Neg", "s", "q"), node("Neg", "t", "r"), node("Sub", "y", "s t")}, target.Product{Clamped: "Relu"}, ""},
		{"Clip to two bounds", nodes{node("MatMul", "p", "a w"), node("Clip", "q", "p scalar"), node("Clip", "r", "p one"), node("Neg", "s", "q"), node("Neg", "t", "r"), node("Sub", "y", "s t")}, target.Product{}, ""},
		{"Transpose of w", nodes{node("Transpose", "t", "w", modeltest.IntsAttr("perm", 1, 0)), node("MatMul", "y", "a t")}, target.Product{WTransposed: true}, ""},
		{"Transpose of w without perm", nodes{node("Transpose", "t", "w"), node("MatMul", "y", "a t")}, target.Product{}, "it is read by Transpose:0"},
		{"left", nodes{node("MatMul", "y", "w a")}, target.Product{}, "it is read by MatMul:0"},
		{"two", nodes{node("MatMul", "p", "a w"), node("MatMul", "y", "p w")}, target.Product{}, "it has several readers"},
		{"nothing", nodes{node("Neg", "y", "x")}, target.Product{}, "nothing reads it where it is stored"},
	} {
		m := modeltest.Model([]*onnxpb.TensorProto{floats("w", 64, 64), floats("vector", 64), floats("row", 1, 64), floats("scalar"),
			fill("none", 0), fill("one", 1, 1), fill("axes", 1, 1, 1, 1), modeltest.Integers("zero", 0), modeltest.Integers("ones", 1), modeltest.Integers("more", 1, 1, 1), modeltest.Integers("most", math.MaxInt64), modeltest.Integers("many", 1<<31-1), modeltest.Integers("shape", 1, 64), floats("column", 64, 1), modeltest.Integers("three", 1, -1, 64)}, c.nodes)
		m.Proto.Graph.Input = append(m.Proto.Graph.Input, &onnxpb.ValueInfoProto{Name: new("a"), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(1)), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
				{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "b"}}, {Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 64}},
			}}},
		}}})
		x := modeltest.Open(t, modeltest.Write(t, m)).Graph()
		if got, other := reach.ProductOf(x, graph.NewShapes(x), x.Values[0], dtype.Float32); got != c.want || other != c.other {
			t.Errorf("%s: %+v, %q, want %+v, %q", c.name, got, other, c.want, c.other)
		}
	}
}
