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

func HasInput(n *onnxpb.NodeProto, i int) bool { return i < len(n.Input) && n.Input[i] != "" }

// Parameter names the first of the attributes that a node takes from the call of
// the function it is in.
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

func WalkGraphs(g *onnxpb.GraphProto, visit func(*onnxpb.GraphProto)) {
	visit(g)
	WalkSubgraphs(g.Node, visit)
}

func WalkSubgraphs(nodes []*onnxpb.NodeProto, visit func(*onnxpb.GraphProto)) {
	for _, n := range nodes {
		for _, a := range n.Attribute {
			for _, sub := range Subgraphs(a) {
				WalkGraphs(sub, visit)
			}
		}
	}
}

// WalkNodes visits the nodes of the graph and of the functions, and of all graphs
// in them.
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

// WalkBody visits the nodes of a function, and then those of the graphs in them.
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

// ConstantTensor returns the tensor that a Constant node holds, or nil.
func ConstantTensor(n *onnxpb.NodeProto) *onnxpb.TensorProto {
	if n.GetOpType() != "Constant" || !IsStandard(n.GetDomain()) {
		return nil
	}
	return Attribute(n, "value").GetT()
}

// IsStandard reports whether a domain is that of the ONNX operators.
func IsStandard(domain string) bool { return domain == "" || domain == "ai.onnx" }

// Contrib is that of ONNX Runtime's own operators.
const Contrib = "com.microsoft"

// Operator is an operator's name with its domain, if that is not ONNX's.
func Operator(n *onnxpb.NodeProto) string {
	if IsStandard(n.GetDomain()) {
		return n.GetOpType()
	}
	return n.GetDomain() + "." + n.GetOpType()
}

// Label names a node, by its output if it has no name.
func Label(n *onnxpb.NodeProto) string {
	if n.GetName() == "" && len(n.Output) > 0 {
		return n.Output[0]
	}
	return n.GetName()
}

// Describe names a node in a message.
func Describe(n *onnxpb.NodeProto) string {
	return fmt.Sprintf("%s node %s", msg.Clean(n.GetOpType()), msg.Quote(Label(n)))
}

func Opset(m *onnxpb.ModelProto) int64 {
	version, _ := opset.Of(m.OpsetImport)
	return version
}

// TrainedNames lists the values that training_info binds.
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

// RuntimeInputs are those that no initializer stands for.
func RuntimeInputs(g *onnxpb.GraphProto) []*onnxpb.ValueInfoProto {
	stored := map[string]bool{}
	for _, t := range g.Initializer {
		stored[t.GetName()] = true
	}
	return slices.DeleteFunc(slices.Clone(g.Input), func(i *onnxpb.ValueInfoProto) bool { return stored[i.GetName()] })
}

// SizeOf returns the bytes of a tensor's content.
func SizeOf(t *onnxpb.TensorProto) int64 {
	n, _ := dtype.Elements(t.GetDims())
	return dtype.DType(t.GetDataType()).Bytes(n)
}

func SameDomain(x, y string) bool { return x == y || IsStandard(x) && IsStandard(y) }

// TypeText tells a value's type and shape, with the names of symbolic dimensions.
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
