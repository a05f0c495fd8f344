package verify

import (
	"fmt"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
)

// A constant has each of its weights once, also behind a chain of nodes that read the one before twice.
func TestWeightsOfConstants(t *testing.T) {
	last := "w"
	var nodes []*onnxpb.NodeProto
	for i := range 64 {
		name := fmt.Sprint("k", i)
		nodes = append(nodes, modeltest.Node("Add", name, last+" "+last))
		last = name
	}
	nodes = append(nodes, modeltest.Node("Add", "both", last+" v"), modeltest.Node("Add", "y", "x both"))
	g := &onnxpb.GraphProto{Node: nodes, Initializer: []*onnxpb.TensorProto{modeltest.Zeros("w", dtype.Float32, 4), modeltest.Zeros("v", dtype.Float32, 4), modeltest.Zeros("float", dtype.Float32, 4)}}
	c := newConstant(g, map[string]float64{"w": 20, "v": 30})
	if got := c["both"]; !slices.Equal(got, []string{"v", "w"}) {
		t.Errorf("weights %q, want v and w", got)
	}
	if got, ok := c["float"]; !ok || got != nil {
		t.Errorf("a float is %q, %v, want a constant without weights", got, ok)
	}
	if _, ok := c["y"]; ok {
		t.Error("what reads an input is a constant")
	}
}
