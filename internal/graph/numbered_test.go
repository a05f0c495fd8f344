package graph

import "testing"

func TestNumbered(t *testing.T) {
	for name, want := range map[string]bool{
		"onnx::MatMul_540": true, "onnx::GRU_2306": true, "val_12": true, "_v_87": true, "87": true, "Parameter193": true, "const_fold_opt__12": true, "arg3": true, "arg_3": true,
		"": false, "w0": false, "weight": false, "layers.0.weight": false, "conv1.weight": false, "tok.weight": false, "lm_head": false, "/blocks.0/MatMul": false, "fc1": false, "onnx::MatMul": false,
	} {
		if got := Numbered(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
