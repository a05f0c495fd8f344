package discover_test

import (
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/discover"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/operands"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/spec"
)

// A residual is used if it is in the same graph as the product.
func TestValueBesideAProduct(t *testing.T) {
	product, addend := node("MatMul", "m", "x w"), node("Neg", "d", "x")
	sum, condition := node("Add", "y", "m d"), node("Cast", "c", "i", intAttr("to", 9))
	choose := func(then ...*onnxpb.NodeProto) *onnxpb.NodeProto {
		return node("If", "y", "c", modeltest.GraphAttr("then_branch", nil, then...), modeltest.GraphAttr("else_branch", nil, node("Abs", "e", "x")))
	}
	for name, c := range map[string]struct {
		nodes nodes
		want  string
	}{
		"beside it":                    {nodes{product, addend, sum}, "d"},
		"in a branch, and the product": {nodes{condition, choose(product, addend, sum)}, "d"},
		"around the branch":            {nodes{condition, addend, choose(product, sum)}, "d"},
		"in a branch":                  {nodes{condition, product, choose(addend, sum)}, ""},
	} {
		x := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{floats("w", 64, 64)}, c.nodes))).Graph()
		all, _, err := discover.All(x, discover.Options{
			Ops: []string{"MatMul"}, Format: spec.Int4, Block: 32, Target: target.Of(spec.Portable),
			Algorithm: spec.Best, Memory: 1 << 30, Calibrated: true, Observed: x,
		}, discover.Exceptions{})
		if err != nil {
			t.Fatal(err)
		}
		d := all[slices.IndexFunc(all, func(d *discover.Decision) bool { return d.Value.Name == "w" })]
		got := ""
		if len(d.Layers) == 1 && d.Layers[0].Beside != nil {
			got = d.Layers[0].Beside.Name
		}
		if len(d.Layers) != 1 || got != c.want {
			t.Errorf("%s: %d layers, %q beside the product", name, len(d.Layers), got)
		}
	}
}

// One matrix with a leading 1 is a matrix as any. Several, one after another, are a stack; in another order they are none.
func TestStacksOfMatrices(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		nodes nodes
		want  any
	}{
		{[]int64{1, 64, 32}, nodes{node("MatMul", "y", "x w")}, operands.Matrix{}},
		{[]int64{1, 64, 32}, nodes{node("Transpose", "p", "w", intsAttr("perm", 2, 1, 0)), node("MatMul", "y", "x p")}, nil},
		{[]int64{4, 64, 32}, nodes{node("MatMul", "y", "x w")}, operands.Stack{N: 4, Width: 64}},
		{[]int64{4, 64, 32}, nodes{node("Transpose", "p", "w", intsAttr("perm", 2, 1, 0)), node("MatMul", "y", "x p")}, nil},
		{[]int64{4, 64, 32}, nodes{node("Reshape", "p", "w s"), node("MatMul", "y", "x p")}, nil},
		{[]int64{4, 64, 32}, nodes{node("Gather", "c", "w i"), node("MatMul", "m", "x c"), node("MatMul", "y", "x w")}, operands.Stack{N: 4, Width: 64}},
		{[]int64{4, 64, 32}, nodes{node("Gather", "c", "w i"), node("MatMul", "y", "x c")}, operands.Chosen{N: 4, Width: 64}},
		{[]int64{4, 64, 32}, nodes{node("Gather", "c", "w i"), node("Cast", "d", "c", intAttr("to", 1)), node("MatMul", "y", "d x")}, operands.Chosen{N: 4, Width: 32, Columns: true}},
		{[]int64{4, 64, 32}, nodes{node("Gather", "c", "w i"), node("MatMul", "m", "x c"), node("Gather", "d", "w i"), node("MatMul", "y", "x d")}, "several operators read matrices of the stack"},
	} {
		gather := ""
		switch c.want.(type) {
		case operands.Chosen, string:
			gather = "Gather"
		}
		model := modeltest.Model([]*onnxpb.TensorProto{floats("w", c.shape...), modeltest.Integers("s", 2, 2, 64, 32)}, c.nodes)
		x := modeltest.Open(t, modeltest.Write(t, model)).Graph()
		all, _, err := discover.All(x, discover.Options{
			Ops: []string{"MatMul", gather}, Format: spec.Int4, Block: 32, Target: target.Of(spec.Portable),
			Algorithm: spec.GPTQ, Memory: 1 << 30, Calibrated: true, Observed: x,
		}, discover.Exceptions{})
		if err != nil {
			t.Fatal(err)
		}
		d := all[slices.IndexFunc(all, func(d *discover.Decision) bool { return d.Value.Name == "w" })]
		var got any
		if len(d.Layers) == 1 {
			got = d.Layers[0].Operation
		}
		if why, ok := c.want.(string); ok {
			if got != nil || !strings.Contains(d.Note, why) || d.Choice.Operand.Axis != 2 {
				t.Errorf("%v, %v: axis %d, %q, want %q", c.shape, c.nodes, d.Choice.Operand.Axis, d.Note, why)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%v, %v: %#v, %q", c.shape, c.nodes, got, d.Note)
		}
	}
}
