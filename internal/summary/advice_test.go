package summary

import (
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Experts that stay in float are worth a warning, unless most weights have codes. Tables are no experts.
func TestLeftExperts(t *testing.T) {
	node := modeltest.Node
	moe := node("com.microsoft.MoE", "m", "x r fc1 _ fc2")
	for name, c := range map[string]struct {
		nodes modeltest.Nodes
		want  string
	}{
		"MoE":               {modeltest.Nodes{moe}, "experts stay in float, 512 KiB: --ops MatMul,Gemm,MoE selects"},
		"matrices":          {modeltest.Nodes{node("Gather", "c", "fc1 i"), node("Cast", "d", "c", modeltest.IntAttr("to", 1)), node("MatMul", "m", "x d")}, "experts stay in float, 256 KiB: --ops MatMul,Gemm,Gather selects"},
		"a table of rows":   {modeltest.Nodes{node("Gather", "c", "fc1 i"), node("Add", "m", "x c")}, ""},
		"one matrix":        {modeltest.Nodes{node("Gather", "c", "one i"), node("MatMul", "m", "x c")}, ""},
		"a table of tables": {modeltest.Nodes{node("Gather", "c", "one i"), node("Add", "m", "x c")}, ""},
	} {
		nodes := append(modeltest.Nodes{node("Identity", "r", "x")}, c.nodes...)
		nodes = append(nodes, node("MatMul", "y", "m w"))
		var tensors modeltest.Tensors
		for _, w := range []*onnxpb.TensorProto{modeltest.Floats("w", 64, 64), modeltest.Floats("fc1", 4, 128, 128), modeltest.Floats("fc2", 4, 128, 128), modeltest.Floats("one", 1, 512, 128)} {
			for _, n := range nodes {
				if strings.Contains(strings.Join(n.Input, " ")+" ", w.GetName()+" ") {
					tensors = append(tensors, w)
					break
				}
			}
		}
		p, err := modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, nodes))).Plan(onnxq.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(LeftExperts(p), "")
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if p.Coverage = 0.9; LeftExperts(p) != nil {
			t.Error("most weights have codes")
		}
	}
}

// Weights of int8 that are multiplied as codes are worth a warning where sums overflow, unless data chose their codes.
func TestOverflowHint(t *testing.T) {
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 64)}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")})
	opened := modeltest.Open(t, modeltest.Write(t, m))
	for _, c := range []struct {
		options  onnxq.Options
		overflow bool
		want     bool
	}{
		{onnxq.Options{Activations: spec.Dynamic}, true, true},
		{onnxq.Options{Activations: spec.Dynamic}, false, false},
		{onnxq.Options{Activations: spec.Dynamic, Format: spec.Uint8}, true, false},
		{onnxq.Options{Bits: 8}, true, false},
	} {
		p, err := opened.Plan(c.options)
		if err != nil {
			t.Fatal(err)
		}
		hints := overflowHint(p, c.overflow)
		if len(hints) == 1 != c.want || c.want && !strings.Contains(hints[0], "--reduce-range") {
			t.Errorf("%+v: %q", c.options, hints)
		}
		if p.Dynamic = new(onnxq.DynamicActivations); overflowHint(p, true) != nil {
			t.Error("data chose")
		}
	}
}
