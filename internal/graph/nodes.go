package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// Attribute returns an attribute of a node, or nil.
func Attribute(n *onnxpb.NodeProto, name string) *onnxpb.AttributeProto {
	for _, a := range n.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// IntAttribute returns an integer attribute of a node, 0 without.
func IntAttribute(n *onnxpb.NodeProto, name string) int64 { return Attribute(n, name).GetI() }

// IntAttributeOr returns an integer attribute of a node, or its default.
func IntAttributeOr(n *onnxpb.NodeProto, name string, otherwise int64) int64 {
	if a := Attribute(n, name); a != nil {
		return a.GetI()
	}
	return otherwise
}

// FloatAttributeOr returns an attribute of a node, or its default.
func FloatAttributeOr(n *onnxpb.NodeProto, name string, otherwise float32) float32 {
	if a := Attribute(n, name); a != nil {
		return a.GetF()
	}
	return otherwise
}

// HasInput reports whether a node has input i: an optional one may be omitted.
func HasInput(n *onnxpb.NodeProto, i int) bool { return i < len(n.Input) && n.Input[i] != "" }

// Parameter returns the first of the named attributes that refers to an attribute of the surrounding
// function (ref_attr_name). Its value is known only at a call.
func Parameter(n *onnxpb.NodeProto, names ...string) string {
	for _, a := range n.Attribute {
		if a.GetRefAttrName() != "" && slices.Contains(names, a.GetName()) {
			return a.GetName()
		}
	}
	return ""
}

// Subgraphs lists the graphs that an attribute holds.
func Subgraphs(a *onnxpb.AttributeProto) []*onnxpb.GraphProto {
	if a.G == nil {
		return a.Graphs
	}
	return append([]*onnxpb.GraphProto{a.G}, a.Graphs...)
}

// WalkGraphs visits a graph and its subgraphs, outer ones first.
func WalkGraphs(g *onnxpb.GraphProto, visit func(*onnxpb.GraphProto)) {
	visit(g)
	WalkSubgraphs(g.Node, visit)
}

// WalkSubgraphs visits the graphs in the attributes of nodes, and their subgraphs.
func WalkSubgraphs(nodes []*onnxpb.NodeProto, visit func(*onnxpb.GraphProto)) {
	for _, n := range nodes {
		for _, a := range n.Attribute {
			for _, sub := range Subgraphs(a) {
				WalkGraphs(sub, visit)
			}
		}
	}
}

// WalkNodes visits all nodes of a model: in the main graph, the functions and all
// subgraphs.
func WalkNodes(m *onnxpb.ModelProto, visit func(*onnxpb.NodeProto)) {
	WalkGraphs(m.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			visit(n)
		}
	})
	for _, f := range m.Functions {
		WalkBody(f.Node, visit)
	}
}

// WalkBody visits the nodes of a function's body, then the nodes of its subgraphs.
func WalkBody(nodes []*onnxpb.NodeProto, visit func(*onnxpb.NodeProto)) {
	for _, n := range nodes {
		visit(n)
	}
	WalkSubgraphs(nodes, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			visit(n)
		}
	})
}

// ConstantTensor returns the tensor of a Constant node; nil for other nodes, and for Constants without
// a tensor.
func ConstantTensor(n *onnxpb.NodeProto) *onnxpb.TensorProto {
	if n.GetOpType() != "Constant" || !IsStandard(n.GetDomain()) {
		return nil
	}
	return Attribute(n, "value").GetT()
}

// IsStandard reports whether domain is the domain of the ONNX operators.
func IsStandard(domain string) bool { return domain == "" || domain == "ai.onnx" }

// IsOperator reports whether a node is an operator of ONNX, by its name.
func IsOperator(n *onnxpb.NodeProto, op string) bool {
	return n.GetOpType() == op && IsStandard(n.GetDomain())
}

// Contrib is the domain of ONNX Runtime's own operators.
const Contrib = "com.microsoft"

// Operator returns the operator of a node, with its domain unless that is ONNX's.
func Operator(n *onnxpb.NodeProto) string {
	if IsStandard(n.GetDomain()) {
		return n.GetOpType()
	}
	return n.GetDomain() + "." + n.GetOpType()
}

// Label returns the name of a node or, if it has none, the name of its first output.
func Label(n *onnxpb.NodeProto) string {
	if n.GetName() == "" && len(n.Output) > 0 {
		return n.Output[0]
	}
	return n.GetName()
}

// FirstOutput returns the first output of a node that has a name, or "".
func FirstOutput(n *onnxpb.NodeProto) string {
	for _, name := range n.Output {
		if name != "" {
			return name
		}
	}
	return ""
}

// Describe names a node for a message.
func Describe(n *onnxpb.NodeProto) string {
	return fmt.Sprintf("%s node %s", msg.Clean(n.GetOpType()), msg.Quote(Label(n)))
}

// Opset returns the version of the ONNX operators that a model imports.
func Opset(m *onnxpb.ModelProto) int64 {
	version, _ := opset.OfModel(m)
	return version
}

// TrainedNames is the set of values that training_info binds.
func TrainedNames(m *onnxpb.ModelProto) map[string]bool {
	names := map[string]bool{}
	for _, t := range m.TrainingInfo {
		for _, kv := range slices.Concat(t.InitializationBinding, t.UpdateBinding) {
			names[kv.GetKey()] = true
			names[kv.GetValue()] = true
		}
	}
	return names
}

// RuntimeInputs lists the graph inputs that are not initializers.
func RuntimeInputs(g *onnxpb.GraphProto) []*onnxpb.ValueInfoProto {
	stored := map[string]bool{}
	for _, t := range g.Initializer {
		stored[t.GetName()] = true
	}
	return slices.DeleteFunc(slices.Clone(g.Input), func(i *onnxpb.ValueInfoProto) bool { return stored[i.GetName()] })
}

// SizeOf returns the size in bytes of a tensor's content.
func SizeOf(t *onnxpb.TensorProto) int64 {
	n, _ := dtype.Elements(t.GetDims())
	return dtype.DType(t.GetDataType()).Bytes(n)
}

// SameDomain reports whether two domains are the same; "" and "ai.onnx" are.
func SameDomain(x, y string) bool { return x == y || IsStandard(x) && IsStandard(y) }

// TypeText formats a type and its shape, with the names of symbolic dimensions.
func TypeText(t *onnxpb.TypeProto) string {
	typ := t.GetTensorType()
	if typ == nil {
		return msg.Clip(t.String())
	}
	text := dtype.DType(typ.GetElemType()).String()
	if typ.Shape == nil {
		return text
	}
	dims := make([]string, len(typ.Shape.Dim))
	for i, dim := range typ.Shape.Dim {
		switch v := dim.Value.(type) {
		case *onnxpb.TensorShapeProto_Dimension_DimValue:
			dims[i] = strconv.FormatInt(v.DimValue, 10)
		case *onnxpb.TensorShapeProto_Dimension_DimParam:
			dims[i] = msg.Clean(v.DimParam)
		default:
			dims[i] = "?"
		}
	}
	return text + " " + msg.Clip("["+strings.Join(dims, " ")+"]")
}
