package reach_test

import (
	"fmt"
	"testing"

	"onnxquant/internal/modeltest"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
)

type nodes = []*onnxpb.NodeProto

// Functions that call others several times are followed once each.
func TestManyCalls(t *testing.T) {
	const depth = 60
	functions := []*onnxpb.FunctionProto{modeltest.Function("f0", "x v", "y", modeltest.Node("MatMul", "y", "x v"))}
	for i := range depth {
		f := fmt.Sprintf("local.f%d", i)
		functions = append(functions, modeltest.Function(fmt.Sprintf("f%d", i+1), "x v", "y",
			modeltest.Node(f, "a", "x v"), modeltest.Node(f, "b", "a v"), modeltest.Node("Add", "y", "a b")))
	}
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, nodes{modeltest.Node(fmt.Sprintf("local.f%d", depth), "y", "x w")}, functions...)))
	p, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil || len(p.Stages().Weights) != 1 {
		t.Fatalf("%v, %d weights", err, len(p.Stages().Weights))
	}
}

// A chain of nodes that is too long to follow ends somewhere, not the program.
func TestLongChain(t *testing.T) {
	list := nodes{modeltest.Node("Identity", "v0", "w")}
	for i := range 5000 {
		list = append(list, modeltest.Node("Identity", fmt.Sprintf("v%d", i+1), fmt.Sprintf("v%d", i)))
	}
	list = append(list, modeltest.Node("MatMul", "y", "x v5000"))
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, list)))
	p, err := m.Plan(onnxq.Options{Block: 32})
	if err != nil || p.Tensors[0].Reason != "read by Identity:0" {
		t.Errorf("%v, %+v", err, p.Tensors[0])
	}
}
