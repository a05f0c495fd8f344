package graph_test

import (
	"errors"
	"strings"
	"testing"

	"onnxquant/internal/modeltest"
	"onnxquant/internal/onnxpb"
	"onnxquant/onnxq"
)

type nodes = []*onnxpb.NodeProto

func TestRecursionIsRefused(t *testing.T) {
	path := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, nodes{modeltest.Node("local.f", "y", "x w")},
		modeltest.Function("f", "x v", "y", modeltest.Node("local.g", "y", "x v")), modeltest.Function("g", "x v", "y", modeltest.Node("local.f", "y", "x v"))))
	if _, err := onnxq.Open(path); !errors.Is(err, onnxq.ErrModel) || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("error %v", err)
	}
}

// A value within a graph may be called like what the node makes that holds it.
func TestNamesOfInnerValues(t *testing.T) {
	inner := modeltest.GraphAttr("then_branch", nil, modeltest.Node("MatMul", "y", "x w"))
	m := modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 32)}, nodes{
		modeltest.Node("If", "y", "c", inner, modeltest.GraphAttr("else_branch", nil, modeltest.Node("Identity", "y", "x"))),
		modeltest.Node("Cast", "c", "i", modeltest.IntAttr("to", int64(onnxpb.TensorProto_BOOL))), // out of order
	})
	p, err := modeltest.Open(t, modeltest.Write(t, m)).Plan(onnxq.Options{Block: 32})
	if err != nil {
		t.Fatal(err)
	}
	if p.Tensors[0].Decision != onnxq.Quantize {
		t.Errorf("%+v", p.Tensors[0])
	}

	inner.G.Node[0].Input[1] = "d" // a cycle after all
	m.Proto.Graph.Node[1].Output[0], m.Proto.Graph.Node[1].Input[0] = "d", "y"
	m.Proto.Graph.Node[0].Input[0] = "i"
	if _, err := onnxq.Open(modeltest.Write(t, m)); err == nil || !strings.Contains(err.Error(), "cycle") {
		t.Error(err)
	}
}
