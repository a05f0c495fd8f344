package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

type nodes = []*onnxpb.NodeProto

func TestRecursionIsRefused(t *testing.T) {
	path := modeltest.Write(t, modeltest.Model([]*onnxpb.TensorProto{modeltest.Floats("w", 64, 64)}, nodes{modeltest.Node("local.f", "y", "x w")},
		modeltest.Function("f", "x v", "y", modeltest.Node("local.g", "y", "x v")), modeltest.Function("g", "x v", "y", modeltest.Node("local.f", "y", "x v"))))
	if _, err := onnxq.Open(path); !errors.Is(err, onnxq.ErrModel) || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("error %v", err)
	}
}

// Indexing takes time in proportion to the initializers, also if all of them are inputs.
func TestManyInputs(t *testing.T) {
	const n = 20000
	x := modeltest.Open(t, modeltest.Write(t, manyInputs(n)))
	must := 0
	for _, v := range x.Graph().Values {
		if v.MustBeInput {
			must++
		}
	}
	if must != n {
		t.Errorf("%d of %d initializers are only listed as inputs", must, n)
	}
}

func manyInputs(n int) *testmodels.Model {
	m := modeltest.Model(nil, nodes{modeltest.Node("Relu", "y", "x")})
	g := m.Proto.Graph
	for i := range n {
		name := fmt.Sprintf("w%d", i)
		g.Initializer = append(g.Initializer, modeltest.Floats(name, 2))
		g.Input = append(g.Input, &onnxpb.ValueInfoProto{Name: &name, Type: g.Input[0].Type})
	}
	return m
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

// An attribute of one type that holds a graph or a tensor, which is of another, is refused,
// whoever reads the model, and nothing is left of what should have been written.
func TestAttributesOfTwoTypes(t *testing.T) {
	weight, inner := modeltest.Floats("w", 64, 32), modeltest.GraphAttr("", modeltest.Tensors{modeltest.Floats("u", 64, 32)}, modeltest.Node("MatMul", "z", "x u"))
	sparse := &onnxpb.SparseTensorProto{Values: modeltest.Floats("", 4), Indices: modeltest.Integers("", 0, 1, 2, 3), Dims: []int64{64, 32}}
	for held, fill := range map[string]func(a *onnxpb.AttributeProto){
		"GRAPH":          func(a *onnxpb.AttributeProto) { a.G = inner.G },
		"GRAPHS":         func(a *onnxpb.AttributeProto) { a.Graphs = []*onnxpb.GraphProto{inner.G} },
		"TENSOR":         func(a *onnxpb.AttributeProto) { a.T = modeltest.Floats("", 64, 32) },
		"TENSORS":        func(a *onnxpb.AttributeProto) { a.Tensors = modeltest.Tensors{modeltest.Floats("", 64, 32)} },
		"SPARSE_TENSOR":  func(a *onnxpb.AttributeProto) { a.SparseTensor = sparse },
		"SPARSE_TENSORS": func(a *onnxpb.AttributeProto) { a.SparseTensors = []*onnxpb.SparseTensorProto{sparse} },
	} {
		for _, name := range []string{"value", "transB"} {
			t.Run(held+" "+name, func(t *testing.T) {
				attr := modeltest.IntAttr(name, 1)
				fill(attr)
				path := modeltest.Write(t, modeltest.Model(modeltest.Tensors{weight}, nodes{
					modeltest.Node("MatMul", "h", "x w"), modeltest.Node("Constant", "k", "", attr), modeltest.Node("Add", "y", "h k")}))
				folder := t.TempDir()
				want := `attribute "` + name + `" is of type INT, but holds a ` + held
				for command, run := range map[string]func() error{
					"convert": func() error {
						_, err := onnxq.Convert(t.Context(), path, folder+"/out", onnxq.Options{Block: 32})
						return err
					},
					"dequantize": func() error {
						_, err := restyle.Dequantize(t.Context(), path, folder+"/out", restyle.Options{})
						return err
					},
					"restyle": func() error {
						_, err := restyle.Restyle(t.Context(), path, folder+"/out", spec.NBits, restyle.Options{})
						return err
					},
				} {
					if err := run(); !errors.Is(err, onnxq.ErrModel) || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: error %v, want %s", command, err, want)
					}
				}
				if left := modeltest.List(t, folder); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			})
		}
	}
}

// The domain of the standard's operators may be spelled "ai.onnx"; a copy spells it "", once,
// in the model, its functions and all its graphs.
func TestDomainOfTheStandard(t *testing.T) {
	const long = "ai.onnx"
	m := modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32)}, nodes{
		modeltest.Node(long+".MatMul", "h", "x w"),
		modeltest.Node("If", "j", "i", modeltest.GraphAttr("then_branch", nil, modeltest.Node(long+".Relu", "t", "h")),
			modeltest.GraphAttr("else_branch", nil, modeltest.Node("Relu", "e", "h"))),
		modeltest.Node("local.f", "y", "j"),
	}, modeltest.Function("f", "v", "o", modeltest.Node(long+".Relu", "o", "v")))
	for _, imports := range [][]*onnxpb.OperatorSetIdProto{m.Proto.OpsetImport, m.Proto.Functions[0].OpsetImport} {
		imports[0].Domain = new(long)
	}
	c := modeltest.Open(t, modeltest.Write(t, m)).Graph().Copy()
	checkDomains(t, c.Proto.OpsetImport, "", graph.Contrib, "local")
	checkDomains(t, c.Proto.Functions[0].OpsetImport, "", "local")
	graph.WalkNodes(c.Proto, func(n *onnxpb.NodeProto) {
		if n.GetDomain() == long {
			t.Errorf("%s is of domain %s", n.GetOpType(), long)
		}
	})

	m.Proto.OpsetImport = append(m.Proto.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: new(""), Version: new(int64(17))})
	checkDomains(t, modeltest.Open(t, modeltest.Write(t, m)).Graph().Copy().Proto.OpsetImport, graph.Contrib, "local", "")
}

func checkDomains(t *testing.T, imports []*onnxpb.OperatorSetIdProto, want ...string) {
	t.Helper()
	var got []string
	for _, o := range imports {
		got = append(got, o.GetDomain())
	}
	if !slices.Equal(got, want) {
		t.Errorf("imports of %q, want %q", got, want)
	}
}
