package discover_test

import (
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Weights tell nothing about the inputs of the model, even scaled or added to something. They tell
// about values computed by other weights.
func TestEstimate(t *testing.T) {
	for name, c := range map[string]struct {
		nodes nodes
		data  bool
	}{
		"input":     {nodes{node("MatMul", "y", "x w")}, true},
		"scaled":    {nodes{node("Mul", "a", "x one"), node("Transpose", "b", "a"), node("MatMul", "y", "b w")}, true},
		"of itself": {nodes{node("MatMul", "a", "x x"), node("MatMul", "y", "a w")}, true},
		"layer":     {nodes{node("MatMul", "a", "x v"), node("Relu", "b", "a"), node("MatMul", "y", "b w")}, false},
		"both":      {nodes{node("MatMul", "a", "x v"), node("Add", "b", "x a"), node("MatMul", "y", "b w")}, false},
	} {
		in := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{floats("w", 64, 64), floats("v", 64, 64), floats("one", 1, 64)}, c.nodes)))
		plan, err := in.Plan(onnxq.Options{Algorithm: spec.Best, Block: 32, AllowFallback: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range plan.Tensors {
			if w.Name == "w" && strings.Contains(w.Note, "algorithm mse") != c.data {
				t.Errorf("%s: note %q", name, w.Note)
			}
		}
	}
}
