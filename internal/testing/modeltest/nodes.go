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

// Node makes a node of one output. Names of inputs are separated by spaces, _ is none; an
// operator may have a domain in front.
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

// ConstantNode makes a node whose output is a tensor.
func ConstantNode(output string, t *onnxpb.TensorProto) *onnxpb.NodeProto {
	return Node("Constant", output, "", &onnxpb.AttributeProto{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: t})
}

// IntAttr makes an attribute of an integer.
func IntAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}

// IntsAttr makes an attribute of integers.
func IntsAttr(name string, v ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: v}
}

// StringAttr makes an attribute of a string.
func StringAttr(name, v string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(v)}
}

// GraphAttr makes an attribute of a graph whose output is that of its last node.
func GraphAttr(name string, tensors []*onnxpb.TensorProto, nodes ...*onnxpb.NodeProto) *onnxpb.AttributeProto {
	output := nodes[len(nodes)-1].Output[0]
	g := &onnxpb.GraphProto{Name: new("g"), Node: nodes, Initializer: tensors, Output: []*onnxpb.ValueInfoProto{{Name: &output}}}
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
func Zeros(name string, typ dtype.DType, shape ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: new(int32(typ)), Dims: shape, RawData: make([]byte, typ.Bytes(shapes.Count(shape)))}
}

// Integers makes a vector of type int64.
func Integers(name string, v ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: new(int32(dtype.Int64)), Dims: []int64{int64(len(v))}, Int64Data: v}
}

// Model makes a model of opset 17 with inputs x and i, output y and the given contents.
func Model(tensors []*onnxpb.TensorProto, nodes []*onnxpb.NodeProto, functions ...*onnxpb.FunctionProto) *testmodels.Model {
	typed := func(name string, of dtype.DType) *onnxpb.ValueInfoProto {
		return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(of))},
		}}}
	}
	return &testmodels.Model{Proto: &onnxpb.ModelProto{
		IrVersion: new(int64(8)), OpsetImport: imports(graph.Contrib, "local"), Functions: functions,
		Graph: &onnxpb.GraphProto{
			Name: new("g"), Node: nodes, Initializer: tensors,
			Input:  []*onnxpb.ValueInfoProto{typed("x", dtype.Float32), typed("i", dtype.Int64)},
			Output: []*onnxpb.ValueInfoProto{typed("y", dtype.Float32)},
		},
	}}
}

// Function makes the function local.name, of opset 17.
func Function(name, inputs, output string, nodes ...*onnxpb.NodeProto) *onnxpb.FunctionProto {
	return &onnxpb.FunctionProto{
		Name: &name, Domain: new("local"), Input: strings.Fields(inputs), Output: []string{output}, Node: nodes,
		OpsetImport: imports("local"),
	}
}

// imports are opset 17 and version 1 of other domains.
func imports(domains ...string) []*onnxpb.OperatorSetIdProto {
	list := []*onnxpb.OperatorSetIdProto{{Domain: new(""), Version: new(int64(17))}}
	for _, domain := range domains {
		list = append(list, &onnxpb.OperatorSetIdProto{Domain: &domain, Version: new(int64(1))})
	}
	return list
}
