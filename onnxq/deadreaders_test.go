package onnxq_test

import (
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/access"
	"onnxquant/internal/modeltest"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

// Nodes that read a weight and that nobody reads do not keep ONNX Runtime's operators from
// its codes: they go with the weight, or the weight stays behind DequantizeLinear.
func TestDeadReaders(t *testing.T) {
	ignores := modeltest.Function("ignores", "x v", "y", modeltest.Node("Relu", "y", "x"))
	drops := modeltest.Function("drops", "x v", "y", modeltest.Node("Relu", "y", "x"), modeltest.Node("Transpose", "d", "v"))
	nothing := modeltest.Function("nothing", "x v", "y", modeltest.Node("Relu", "y", "x"), modeltest.Node("local.ignores", "d", "x v"))
	cast := modeltest.IntAttr("to", int64(dtype.Float16))
	for name, c := range map[string]struct {
		dead modeltest.Nodes
		kept bool // behind DequantizeLinear
	}{
		"Identity":           {modeltest.Nodes{modeltest.Node("Identity", "d", "w")}, false},
		"Transpose":          {modeltest.Nodes{modeltest.Node("Transpose", "d", "w")}, false},
		"Cast":               {modeltest.Nodes{modeltest.Node("Cast", "d", "w", cast)}, false},
		"Reshape":            {modeltest.Nodes{modeltest.Node("Reshape", "d", "w shape")}, false},
		"computed Reshape":   {modeltest.Nodes{modeltest.Node("Reshape", "d", "w i")}, false},
		"chain":              {modeltest.Nodes{modeltest.Node("Transpose", "c", "w"), modeltest.Node("Identity", "d", "c"), modeltest.Node("Cast", "e", "c", cast)}, false},
		"argument":           {modeltest.Nodes{modeltest.Node("local.ignores", "d", "x w")}, true},
		"dropped argument":   {modeltest.Nodes{modeltest.Node("local.drops", "d", "x w")}, true},
		"argument of a call": {modeltest.Nodes{modeltest.Node("local.nothing", "d", "x w")}, true},
		"argument and more":  {modeltest.Nodes{modeltest.Node("Transpose", "c", "w"), modeltest.Node("local.ignores", "d", "x c")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			list := append(modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}, c.dead...)
			m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32), modeltest.Integers("shape", 32, 64)}, list, ignores, drops, nothing)
			in := modeltest.Write(t, m)
			for _, opts := range []onnxq.Options{{Style: spec.NBits}, {Target: spec.ORT}, {Target: spec.ORT, Ops: []string{"all"}}} {
				opts.Block = 32
				out := filepath.Join(t.TempDir(), "out.onnx")
				modeltest.Convert(t, in, out, opts)
				g := access.Graph(modeltest.Open(t, out)).File.Proto.Graph // every input exists, or it would not open
				if hasOperator(g, "MatMulNBits") == c.kept || hasOperator(g, "DequantizeLinear") != c.kept {
					t.Errorf("%s %s: it has %v", opts.Style, opts.Target, g.Node)
				}
				if !c.kept && len(g.Node) != 1 {
					t.Errorf("%s %s: %d nodes, want MatMulNBits alone", opts.Style, opts.Target, len(g.Node))
				}
			}
		})
	}
}

func hasOperator(g *onnxpb.GraphProto, op string) bool {
	return slices.ContainsFunc(g.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == op })
}
