package onnxq_test

import (
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// A MatMulNBits has its bias as sixth input. If the options or the target forbid that, an Add
// stays, or follows a Gemm.
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
		{"MatMul", modeltest.Nodes{modeltest.Node("MatMul", "p", "x w"), modeltest.Node("Add", "y", "p b")}, web, 6, false},
		{"Gemm", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, onnxq.Options{Style: spec.NBits}, 6, false},
		{"Gemm", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, onnxq.Options{Style: spec.NBits, NoFoldBias: true}, 3, true},
		{"Gemm", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, web, 6, false},
		{"zero points", modeltest.Nodes{modeltest.Node("Gemm", "y", "x w b")}, onnxq.Options{Target: spec.ORTWeb, ZeroPoint: true}, 6, false},
		{"2 bits", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Bits: 2}, 3, false},
		{"8 bits", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Bits: 8}, 3, false},
		{"block", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Block: 64, AllowFallback: true}, 3, false},
		{"channel", modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, onnxq.Options{Target: spec.ORTWeb, Block: spec.PerChannel}, 3, false},
	} {
		m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 96, 32), modeltest.Floats("b", 32)}, c.nodes)
		out := filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, modeltest.Write(t, m), out, c.opts)
		g := modeltest.Open(t, out).Graph().File.Proto.Graph
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

func hasOperator(g *onnxpb.GraphProto, op string) bool {
	return slices.ContainsFunc(g.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == op })
}
