package onnxq_test

import (
	"path/filepath"
	"testing"

	"onnxquant/internal/access"
	"onnxquant/internal/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

// A MatMulNBits has its bias as sixth input, unless the options or the target forbid it: then
// an Add stays, or comes behind a Gemm.
func TestBias(t *testing.T) {
	web := onnxq.Options{Target: spec.ORTWeb}
	for _, c := range []struct {
		name   string
		nodes  modeltest.Nodes
		opts   onnxq.Options
		inputs int // of MatMulNBits; 0: there is none
		add    bool
	}{
		{"MatMul", modeltest.Nodes{modeltest.Node("MatMul", "p", "x w"), modeltest.Node("Add", "y", "p b")}, onnxq.Options{Style: spec.NBits}, 6, false},
		{"MatMul", modeltest.Nodes{modeltest.Node("MatMul", "p", "x w"), modeltest.Node("Add", "y", "p b")}, onnxq.Options{Style: spec.NBits, NoFoldBias: true}, 3, true},
		{"MatMul", modeltest.Nodes{modeltest.Node("MatMul", "p", "x w"), modeltest.Node("Add", "y", "p b")}, web, 3, true},
		{"Gemm", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, onnxq.Options{Style: spec.NBits}, 6, false},
		{"Gemm", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, onnxq.Options{Style: spec.NBits, NoFoldBias: true}, 3, true},
		{"Gemm", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, web, 3, true},
		{"zero points", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, onnxq.Options{Target: spec.ORTWeb, ZeroPoint: true}, 4, true},
		{"2 bits", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Bits: 2}, 3, false},
		{"8 bits", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Bits: 8}, 0, false},
		{"block", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Block: 64}, 3, false},
		{"channel", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Block: spec.PerChannel}, 0, false},
	} {
		m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 96, 32), modeltest.Floats("b", 32)}, c.nodes)
		out := filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, modeltest.Write(t, m), out, c.opts)
		g := access.Graph(modeltest.Open(t, out)).File.Proto.Graph
		inputs := 0
		for _, n := range g.Node {
			if n.GetOpType() == "MatMulNBits" {
				inputs = len(n.Input)
			}
		}
		if inputs != c.inputs || hasOperator(g, "Add") != c.add || hasOperator(g, "DequantizeLinear") != (c.inputs == 0) {
			t.Errorf("%s for %q %q: MatMulNBits has %d inputs, want %d; nodes %v", c.name, c.opts.Style, c.opts.Target, inputs, c.inputs, g.Node)
		}
	}
}
