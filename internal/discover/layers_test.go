package discover_test

import (
	"slices"
	"testing"

	"onnxquant/internal/discover"
	"onnxquant/internal/onnxpb"
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
