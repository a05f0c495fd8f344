package onnxq_test

import (
	"path/filepath"
	"testing"

	"onnxquant/internal/access"
	"onnxquant/internal/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

// Before opset 21, ONNX Runtime fuses codes of int8 per channel behind a Transpose only with zero points: they are
// stored, once for equal shapes, where MatMulNBits cannot hold the weight, for ONNX Runtime alone.
func TestStoredZeros(t *testing.T) {
	perm := modeltest.IntsAttr("perm", 1, 0)
	turned := modeltest.Nodes{modeltest.Node("Transpose", "v", "w", perm), modeltest.Node("MatMul", "h", "x v"), modeltest.Node("Transpose", "u", "t", perm), modeltest.Node("MatMul", "k", "x u"), modeltest.Node("Mul", "y", "h k")}
	for _, c := range []struct {
		name   string
		opset  int64
		k      int64
		nodes  modeltest.Nodes
		opts   onnxq.Options
		inputs int // of DequantizeLinear; 0: there is none
	}{
		{"opset 20", 20, 300, turned, onnxq.Options{Target: spec.ORT, Bits: 8, Block: spec.PerChannel}, 3},
		{"opset 13", 13, 300, turned, onnxq.Options{Target: spec.ORT, Bits: 8, Block: spec.PerChannel}, 3},
		{"opset 21", 21, 300, turned, onnxq.Options{Target: spec.ORT, Bits: 8, Block: spec.PerChannel}, 2},
		{"short rows", 20, 256, turned, onnxq.Options{Target: spec.ORT, Bits: 8, Block: spec.PerChannel}, 0},
		{"portable", 20, 300, turned, onnxq.Options{Bits: 8, Block: spec.PerChannel}, 2},
		{"style dq", 20, 300, turned, onnxq.Options{Target: spec.ORT, Bits: 8, Block: spec.PerChannel, Style: spec.DQ}, 2},
		{"no product", 20, 300, modeltest.Nodes{modeltest.Node("Transpose", "v", "w", perm), modeltest.Node("Einsum", "y", "x v", modeltest.StringAttr("equation", "ij,jk->ik"))},
			onnxq.Options{Target: spec.ORT, Bits: 8, Block: spec.PerChannel, Ops: []string{"Einsum"}}, 2},
	} {
		m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 40, c.k), modeltest.Floats("t", 40, c.k)}, c.nodes)
		m.Proto.OpsetImport[0].Version = &c.opset
		out := filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, modeltest.Write(t, m), out, c.opts)
		g := access.Graph(modeltest.Open(t, out)).File.Proto.Graph
		inputs, zeros := 0, map[string]bool{}
		for _, n := range g.Node {
			if n.GetOpType() == "DequantizeLinear" {
				inputs = len(n.Input)
				for _, name := range n.Input[2:] {
					zeros[name] = true
				}
			}
		}
		if inputs != c.inputs || len(zeros) != max(c.inputs-2, 0) {
			t.Errorf("%s: DequantizeLinear has %d inputs, want %d; zero points %v", c.name, inputs, c.inputs, zeros)
		}
		for _, z := range g.Initializer {
			if zeros[z.GetName()] && string(z.RawData) != string(make([]byte, 40)) {
				t.Errorf("%s: zero points %v", c.name, z.RawData)
			}
		}
	}
}
