package summary

import (
	"strings"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
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
