package written_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/internal/written"
)

// The hashes of the structure tell edits of nodes from rewritten graphs, and from what no model computes with.
func TestStructure(t *testing.T) {
	sparse := &onnxpb.SparseTensorProto{Values: modeltest.Floats("v", 2), Indices: modeltest.Integers("", 3, 5), Dims: []int64{64}}
	constant := modeltest.Node("Constant", "c", "", &onnxpb.AttributeProto{Name: new("sparse_value"), Type: onnxpb.AttributeProto_SPARSE_TENSOR.Enum(), SparseTensor: sparse})
	nodes := modeltest.Nodes{constant, modeltest.Node("Gemm", "y", "x w c", modeltest.IntAttr("transB", 1))}
	m := modeltest.Model(modeltest.Tensors{modeltest.Zeros("w", dtype.Float32, 64, 64)}, nodes).Proto
	none := func(int, *onnxpb.TensorProto) (uint32, bool) { return 0, true }
	was := written.Of(m, none, false)
	for _, c := range []struct {
		name             string
		graph, operators bool // changes
		edit             func(g *onnxpb.GraphProto)
	}{
		{"name of a node", false, false, func(g *onnxpb.GraphProto) { g.Node[1].Name = new("other") }},
		{"documentation", false, false, func(g *onnxpb.GraphProto) { g.DocString = new("text") }},
		{"attribute", true, false, func(g *onnxpb.GraphProto) { g.Node[1].Attribute[0].I = new(int64(0)) }},
		{"input", true, false, func(g *onnxpb.GraphProto) { g.Node[1].Input[2] = "w" }},
		{"dims of a sparse attribute", true, false, func(g *onnxpb.GraphProto) { g.Node[0].Attribute[0].SparseTensor.Dims[0] = 65 }},
		{"type of a sparse attribute", true, false, func(g *onnxpb.GraphProto) {
			g.Node[0].Attribute[0].SparseTensor.Values.DataType = new(int32(dtype.Int32))
		}},
		{"operator", true, true, func(g *onnxpb.GraphProto) { g.Node[1].OpType = new("Sum") }},
		{"node", true, true, func(g *onnxpb.GraphProto) { g.Node = append(g.Node, modeltest.Node("Relu", "z", "y")) }},
		{"dims of a tensor", true, true, func(g *onnxpb.GraphProto) { g.Initializer[0].Dims[0] = 32 }},
	} {
		edited := proto.CloneOf(m)
		c.edit(edited.Graph)
		is := written.Of(edited, none, false)
		if graph, operators := is.Graph != was.Graph, is.Operators != was.Operators; graph != c.graph || operators != c.operators {
			t.Errorf("%s: graph changed %v, operators %v, want %v and %v", c.name, graph, operators, c.graph, c.operators)
		}
	}
}
