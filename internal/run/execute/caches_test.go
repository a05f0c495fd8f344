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

// A cache that slides has the length of the window.
func TestModelInputsOfSlidingCaches(t *testing.T) {
	m := graphtext.Model(t, 18, "p:float[1,2,3,8] w:float[8,32]=1",
		"q = MatMul(x, w)\no, rk, rv = com.microsoft::GroupQueryAttention<num_heads=4, kv_num_heads=2, local_window_size=32, sliding_window_cache=1>(q, k, v, p, u, s, n)", "o:float")
	open := m.Graph.Input[0].Type.GetTensorType().Shape.Dim[2]
	open.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "past_sliding_length"}
	if n, _ := execute.FixedSize(execute.ModelInputs(m.Graph)[0].Type.GetTensorType().Shape.Dim[2]); n != 32 {
		t.Errorf("%d, want 32", n)
	}
}

// Ids index tables that are stored transposed, as a head that is the embedding, too, and tables of codes.
func TestVocabulary(t *testing.T) {
	for _, test := range []struct {
		values, nodes string
		want          int64
	}{
		{"w:float[20,8]=1", "y = Gather(w, ids)", 20},
		{"w:float[8,20]=1", "t = Transpose<perm=[1,0]>(w)\ny = Gather(t, ids)", 20},
		{"w:float[8,20]=1", "y = Gather<axis=-1>(w, ids)", 20},
		{"c:float[20,2,16]=1 s:float[20,2]=1", "r = Reshape(c, n)\ny = com.microsoft::GatherBlockQuantized<gather_axis=0>(r, ids, s)", 20},
		{"w:float[8,20]=1", "t = Relu(w)\ny = Gather(t, ids)", 0},
	} {
		m := graphtext.Model(t, 18, "ids:int64[1,3] "+test.values, test.nodes, "y:float")
		if got := execute.Vocabulary(m.Graph, "ids"); got != test.want {
			t.Errorf("%s: %d, want %d", test.nodes, got, test.want)
		}
	}
}
