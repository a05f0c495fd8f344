package rewrite_test

import (
	"slices"
	"testing"

	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/spec"
)

// A node that reads a weight, and whose output nothing reads, does not prevent operators on codes.
// Either the node is removed with the weight, or nodes decode the weight.
func TestUnreadNodes(t *testing.T) {
	functions := []*onnxpb.FunctionProto{
		modeltest.Function("ignores", "x v", "y", graphtext.Nodes(t, `y = Relu(x)`)...),
		modeltest.Function("drops", "x v", "y", graphtext.Nodes(t, "y = Relu(x)\nd = Transpose(v)")...),
		modeltest.Function("nothing", "x v", "y", graphtext.Nodes(t, "y = Relu(x)\nd = local::ignores(x, v)")...),
	}
	for _, c := range []struct {
		name, unread string
		kept         bool // nodes decode the weight
	}{
		{"Identity", `d = Identity(w)`, false},
		{"Transpose", `d = Transpose(w)`, false},
		{"Cast", `d = Cast<to=10>(w)`, false},
		{"Reshape", `d = Reshape(w, shape)`, false},
		{"computed Reshape", `d = Reshape(w, i)`, false},
		{"chain", "c = Transpose(w)\nd = Identity(c)\ne = Cast<to=10>(c)", false},
		{"argument", `d = local::ignores(x, w)`, true},
		{"dropped argument", `d = local::drops(x, w)`, true},
		{"argument of a call", `d = local::nothing(x, w)`, true},
		{"argument and more", "c = Transpose(w)\nd = local::ignores(x, c)", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, o := range []discover.Options{{Style: spec.NBits}, {Target: target.Of(spec.ORT)}, {Target: target.Of(spec.ORT), Ops: reach.KnownOps}} {
				nodes := graphtext.Nodes(t, "y = MatMul(x, w)\n"+c.unread)
				m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 512, 512), modeltest.Integers("shape", 256, 1024)}, nodes, functions...)
				o.Block = 32
				made := quantized(t, m.Proto, o).Copy.Proto
				if err := graph.Check(made); err != nil {
					t.Fatal(err)
				}
				has := func(op string) bool {
					return slices.ContainsFunc(made.Graph.Node, func(n *onnxpb.NodeProto) bool { return n.GetOpType() == op })
				}
				if has("MatMulNBits") == c.kept || (has("DequantizeLinear") || has("Mul")) != c.kept || !c.kept && len(made.Graph.Node) != 1 {
					t.Errorf("style %q: nodes decode the weight: want %v, got\n%s", o.Style, c.kept, graphtext.Print(made.Graph.Node, nil))
				}
			}
		})
	}
}
