package half_test

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/half"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// filled is a stored tensor of equal numbers, whose root mean square is known.
func filled(name string, v float32, shape ...int64) *onnxpb.TensorProto {
	t := modeltest.Floats(name, shape...)
	for i := range t.FloatData {
		t.FloatData[i] = v
	}
	return t
}

// What operators make of two values: n has the size 2.5 and no gain, the product p has 80 and one.
// The size of x is unknown, which counts as 1.
func TestEstimate(t *testing.T) {
	tensors := modeltest.Tensors{
		filled("wide", 8, 16, 64), filled("tall", 8, 64, 16), filled("two", 2, 16), filled("bias", 1.5, 16), filled("w", 8, 16, 16), filled("k", 0.5, 3, 4, 2, 2), filled("b3", 3, 3), filled("zeros", 0, 16),
		filled("three", 3), filled("many", -0.25, 100, 100), modeltest.Zeros("integers", dtype.Int64, 4),
	}
	node := modeltest.Node
	const n, p = 2.5, 2.5 * 8 * 4 // w sums 16 products
	for _, c := range []struct {
		name       string
		nodes      modeltest.Nodes
		rms, gains float64
	}{
		{"normalization", modeltest.Nodes{node("Identity", "y", "n")}, n, 0},
		{"product", modeltest.Nodes{node("Transpose", "y", "p")}, p, 1},
		{"two products", modeltest.Nodes{node("MatMul", "y", "p w")}, p * 8 * 4, 2},
		{"Gemm", modeltest.Nodes{node("Gemm", "y", "n w bias", floatAttr("alpha", 0.5))}, math.Hypot(p/2, 1.5), 1},
		{"a bias of zeros", modeltest.Nodes{node("Gemm", "y", "n w zeros", floatAttr("alpha", 0x1p-10))}, p * 0x1p-10, 1},
		{"a product with zeros", modeltest.Nodes{node("Mul", "z", "n zeros"), node("Div", "y", "z z")}, 1, 0},
		{"wide Gemm", modeltest.Nodes{node("Gemm", "y", "n wide")}, p, 1},
		{"wide Gemm, transposed", modeltest.Nodes{node("Gemm", "y", "n tall", modeltest.IntAttr("transB", 1))}, p, 1},
		{"Gemm of transposes", modeltest.Nodes{node("Gemm", "y", "wide wide", modeltest.IntAttr("transA", 1))}, 8 * 8 * 4, 1},
		{"Conv", modeltest.Nodes{node("Tanh", "t", "n"), node("Conv", "y", "t k b3")}, math.Hypot(1*0.5*4, 3), 0},
		{"Relu", modeltest.Nodes{node("Relu", "y", "p")}, p / math.Sqrt2, 1},
		{"Tanh", modeltest.Nodes{node("Tanh", "y", "p")}, 1, 0},
		{"Softmax", modeltest.Nodes{node("Softmax", "y", "many")}, 0.1, 0},
		{"sum", modeltest.Nodes{node("Add", "y", "n p")}, math.Hypot(n, p), 1},
		{"largest", modeltest.Nodes{node("Concat", "y", "n p", modeltest.IntAttr("axis", 0))}, p, 1},
		{"square", modeltest.Nodes{node("Mul", "y", "p p")}, p * p, 2},
		{"divided by itself", modeltest.Nodes{node("Div", "y", "p p")}, 1, 0},
		{"root", modeltest.Nodes{node("Sqrt", "y", "p")}, math.Sqrt(p), 0.5},
		{"reciprocal", modeltest.Nodes{node("Reciprocal", "y", "p")}, 1 / p, -1},
		{"cube", modeltest.Nodes{node("Pow", "y", "p three")}, p * p * p, 3},
		{"constant", modeltest.Nodes{node("Constant", "c", "", floatAttr("value_float", -7)), node("Mul", "y", "c n")}, 7 * n, 0},
		{"sampled", modeltest.Nodes{node("Identity", "y", "many")}, 0.25, 0},
		{"beyond numbers", modeltest.Nodes{node("Pow", "q", "p three"), node("Pow", "r", "q three"), node("Pow", "s", "r three"), node("Add", "y", "s p")}, math.Hypot(1, p), 1},
		{"unknown", modeltest.Nodes{node("Add", "y", "x p")}, math.Hypot(1, p), 1},
		{"unknown, divided by itself", modeltest.Nodes{node("Div", "y", "x x")}, 1, 0},
	} {
		nodes := append(modeltest.Nodes{node("LayerNormalization", "n", "x two bias"), node("MatMul", "p", "n w")}, c.nodes...)
		x := modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, nodes))).Graph()
		rms, gains := half.Estimate(x, "y")
		if math.Abs(rms-c.rms) > 1e-6*c.rms || gains != c.gains {
			t.Errorf("%s: %v with %v gains, want %v with %v", c.name, rms, gains, c.rms, c.gains)
		}
	}
}

func floatAttr(name string, v float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &v}
}
