package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// Calls give way to the nodes of functions, whose values get names of their own.
func TestInlined(t *testing.T) {
	given := modeltest.Node("LeakyRelu", "h", "a", &onnxpb.AttributeProto{Name: new("alpha"), Type: onnxpb.AttributeProto_FLOAT.Enum(), RefAttrName: new("slope")})
	inner := func() *onnxpb.FunctionProto {
		f := modeltest.Function("f", "a b", "y", given, modeltest.Node("If", "y", "b",
			modeltest.GraphAttr("then_branch", nil, modeltest.Node("Neg", "h2", "h")), modeltest.GraphAttr("else_branch", nil, modeltest.Node("Abs", "k", "a")))) // k is outside, too
		f.Output = append(f.Output, "a") // an input that is an output
		f.AttributeProto = []*onnxpb.AttributeProto{{Name: new("slope"), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: new(float32(0.5))}}
		return f
	}
	both := modeltest.Node("local.f", "z", "x")
	both.Output = append(both.Output, "again")
	outer := modeltest.Function("g", "x", "z", both, modeltest.Node("Neg", "h", "again"))
	calls := nodes{modeltest.Node("Neg", "h", "x"), modeltest.Node("local.g", "k", "h"), modeltest.Node("local.f", "y", "k i", modeltest.IntAttr("other", 1))}
	inlined := func(f *onnxpb.FunctionProto) (x, y *graph.Graph) {
		x = modeltest.Open(t, modeltest.Write(t, modeltest.Model(nil, calls, f, outer))).Graph()
		y, err := x.Inlined()
		if err != nil {
			t.Fatal(err)
		}
		return x, y
	}
	_, y := inlined(inner())
	var got []string
	graph.WalkNodes(y.File.Proto, func(n *onnxpb.NodeProto) {
		got = append(got, fmt.Sprint(n.GetOpType(), n.Input, n.Output, graph.Attribute(n, "alpha").GetF()))
	})
	want := []string{
		"Neg[x] [h] 0",
		"LeakyRelu[h] [k/h_1] 0.5", "If[] [k] 0", "Identity[h] [k/again] 0", "Neg[k/again] [k/h] 0",
		"LeakyRelu[k] [y/h] 0.5", "If[i] [y] 0",
		"Neg[k/h_1] [h2_1] 0", "Abs[h] [k_1] 0", "Neg[y/h] [h2_2] 0", "Abs[k] [k_2] 0",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	other := inner()
	other.OpsetImport[0].Version = new(int64(16))
	if x, y := inlined(other); x != y {
		t.Error("a function of another opset is inlined")
	}
	asks := inner()
	asks.Node[1].Attribute[0] = &onnxpb.AttributeProto{Name: new("then_branch"), Type: onnxpb.AttributeProto_GRAPH.Enum(), RefAttrName: new("then")}
	asks.Attribute = []string{"then"}
	calls[2].Attribute = append(calls[2].Attribute, modeltest.GraphAttr("then", nil, modeltest.Node("Neg", "k2", "k")))
	if x, y := inlined(asks); x != y {
		t.Error("a function is inlined whose caller gives it a graph")
	}
}
