package execute_test

import (
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/graphtext"
)

// The size of a head follows from what GroupQueryAttention reads.
func TestModelInputsOfCaches(t *testing.T) {
	const node = "o, rk, rv = com.microsoft::GroupQueryAttention<num_heads=4, kv_num_heads=2>"
	for _, test := range []struct {
		values, nodes string
		want          int64
	}{
		{"w:float[8,32]=1", "q = MatMul(x, w)\n" + node + "(q, k, v, p, u, s, n)", 8},
		{"w:float[8,32]=1 b:float[32]=1", "m = MatMul(x, w)\nq = Add(m, b)\n" + node + "(q, k, v, p, u, s, n)", 8},
		{"w:float[8,64]=1", "q = MatMul(x, w)\n" + node + `(q, "", "", p, u, s, n)`, 8},
		{"w:float[8,16]=1", "k = MatMul(x, w)\n" + node + "(x, k, v, p, u, s, n)", 8},
		{"", "q = com.microsoft::MatMulNBits<N=16>(x)\n" + node + "(q, k, v, p, u, s, n)", 4},
		{"w:float[8,33]=1", "q = MatMul(x, w)\n" + node + "(q, k, v, p, u, s, n)", 0},
		{"", "q = Relu(x)\n" + node + "(q, k, v, p, u, s, n)", 0},
	} {
		m := graphtext.Model(t, 18, "p:float[1,2,3,0] "+test.values, test.nodes, "o:float")
		open := m.Graph.Input[0].Type.GetTensorType().Shape.Dim[3]
		open.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "kv_cache_dim"}
		dim := execute.ModelInputs(m.Graph)[0].Type.GetTensorType().Shape.Dim[3]
		if got, _ := execute.FixedSize(dim); got != test.want {
			t.Errorf("%s: %d, want %d", test.nodes, got, test.want)
		}
		if open.GetDimParam() == "" {
			t.Error("the model changed")
		}
	}
}
