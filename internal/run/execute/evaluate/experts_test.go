package evaluate

import (
	"context"
	"errors"
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/testing/modeltest"
)

// Two experts of one input and one hidden unit, whose outputs are known.
func TestMoE(t *testing.T) {
	fc1 := &onnxpb.TensorProto{Name: new("f"), DataType: new(int32(dtype.Float32)), Dims: []int64{2, 1, 1}, FloatData: []float32{2, -3}}
	fc2 := &onnxpb.TensorProto{Name: new("g"), DataType: new(int32(dtype.Float32)), Dims: []int64{2, 1, 1}, FloatData: []float32{5, 7}}
	bias := &onnxpb.TensorProto{Name: new("b"), DataType: new(int32(dtype.Float32)), Dims: []int64{2, 1}, FloatData: []float32{1, 1}}
	logits := &onnxpb.TensorProto{Name: new("r"), DataType: new(int32(dtype.Float32)), Dims: []int64{2, 2}, FloatData: []float32{0, float32(math.Log(3)), float32(math.Log(3)), 0}}
	integer, text := modeltest.IntAttr, modeltest.StringAttr
	// The rows are 1 and 2; the first goes to expert 1 with 3/4, the second to expert 0 with 3/4.
	for _, c := range []struct {
		inputs string
		attrs  []*onnxpb.AttributeProto
		want   []float64 // nil: not supported
	}{
		{"x r f _ g", []*onnxpb.AttributeProto{text("activation_type", "identity")}, []float64{0.75 * -21, 0.75 * 20}},
		{"x r f _ g", []*onnxpb.AttributeProto{text("activation_type", "identity"), integer("normalize_routing_weights", 1)}, []float64{-21, 20}},
		{"x r f _ g", []*onnxpb.AttributeProto{text("activation_type", "identity"), integer("k", 2)}, []float64{0.75*-21 + 0.25*10, 0.75*20 + 0.25*-42}},
		{"x r f b g b", []*onnxpb.AttributeProto{integer("normalize_routing_weights", 1)}, []float64{1, 26}},
		{"x r f _ g _ g", []*onnxpb.AttributeProto{text("activation_type", "identity")}, []float64{0.75 * -147, 0.75 * 200}},
		{"x r f _ g _ g", []*onnxpb.AttributeProto{text("activation_type", "swiglu"), integer("swiglu_fusion", 1)}, nil},
		{"x r f _ g", []*onnxpb.AttributeProto{text("activation_type", "swiglu")}, nil},
		{"x r f _ g", []*onnxpb.AttributeProto{text("activation_type", "tanh")}, nil},
		{"x r f _ g", []*onnxpb.AttributeProto{integer("use_sparse_mixer", 1)}, nil},
	} {
		path := written(t, modeltest.Model([]*onnxpb.TensorProto{fc1, fc2, bias, logits}, []*onnxpb.NodeProto{modeltest.Node("com.microsoft.MoE", "y", c.inputs, c.attrs...)}))
		x, err := execute.FromFloat64s(dtype.Float32, []int64{2, 1}, []float64{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		x.Name = "x"
		i, err := execute.New(dtype.Int64, []int64{1})
		if err != nil {
			t.Fatal(err)
		}
		i.Name = "i"
		out, err := Go.Run(context.Background(), path, []*execute.Tensor{x, i})
		if c.want == nil {
			if !errors.Is(err, execute.ErrUnsupported) {
				t.Errorf("%s: %v", c.inputs, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range out[0].Float64s() {
			if math.Abs(v-c.want[j]) > 1e-5 {
				t.Errorf("%s %v: %v, want %v", c.inputs, c.attrs, out[0].Float64s(), c.want)
			}
		}
	}
}
