package modeltest

import (
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
	"onnxquant/testmodels"
)

// Nodes and Tensors are the parts of a graph.
type (
	Nodes   = []*onnxpb.NodeProto
	Tensors = []*onnxpb.TensorProto
)

// Model makes a model of opset 17 with inputs x and i, output y and the given contents.
func Model(tensors Tensors, nodes Nodes, functions ...*onnxpb.FunctionProto) *testmodels.Model {
	typed := func(name string, of onnxpb.TensorProto_DataType) *onnxpb.ValueInfoProto {
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(of))},
		}}}
	}
	imports := []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: new(int64(17))}}
	for _, domain := range []string{graph.Contrib, "local"} {
		imports = append(imports, &onnxpb.OperatorSetIdProto{Domain: &domain, Version: new(int64(1))})
	}
	return &testmodels.Model{Proto: &onnxpb.ModelProto{
		IrVersion: new(int64(8)), OpsetImport: imports, Functions: functions,
		Graph: &onnxpb.GraphProto{
			Name: new("g"), Node: nodes, Initializer: tensors,
			Input:  []*onnxpb.ValueInfoProto{typed("x", onnxpb.TensorProto_FLOAT), typed("i", onnxpb.TensorProto_INT64)},
			Output: []*onnxpb.ValueInfoProto{typed("y", onnxpb.TensorProto_FLOAT)},
		},
	}}
}

// Node makes a node of one output. Names of inputs are separated by spaces, _ is
// none; an operator may have a domain in front.
func Node(op, output, inputs string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{Output: []string{output}, Attribute: attrs}
	for name := range strings.FieldsSeq(inputs) {
		n.Input = append(n.Input, strings.Trim(name, "_"))
	}
	if i := strings.LastIndexByte(op, '.'); i >= 0 {
		n.Domain, op = new(op[:i]), op[i+1:]
	}
	n.OpType = &op
	return n
}

// Constant makes a Constant node.
func Constant(name string, t *onnxpb.TensorProto) *onnxpb.NodeProto {
	return Node("Constant", name, "", &onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t})
}

// Function makes the function local.name of opset 17.
func Function(name, inputs, output string, nodes ...*onnxpb.NodeProto) *onnxpb.FunctionProto {
	return &onnxpb.FunctionProto{
		Name: &name, Domain: new("local"), Input: strings.Fields(inputs), Output: []string{output}, Node: nodes,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: new(int64(17))}, {Domain: new("local"), Version: new(int64(1))}},
	}
}

// Body makes an attribute that holds a graph. Its output is that of the last node.
func Body(name string, tensors Tensors, nodes ...*onnxpb.NodeProto) *onnxpb.AttributeProto {
	g := &onnxpb.GraphProto{Name: new("g"), Node: nodes, Initializer: tensors, Output: []*onnxpb.ValueInfoProto{{Name: new(nodes[len(nodes)-1].Output[0])}}}
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_GRAPH.Enum(), G: g}
}

// Floats makes a tensor of small numbers.
func Floats(name string, shape ...int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype.Float32)), Dims: shape}
	for i := range shapes.Count(shape) {
		t.FloatData = append(t.FloatData, float32(i%13)-6)
	}
	return t
}

// Zeros makes a tensor of any type.
func Zeros(name string, dtype dtype.DType, shape ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype)), Dims: shape, RawData: make([]byte, dtype.Bytes(shapes.Count(shape)))}
}
