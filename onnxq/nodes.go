package onnxq

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

func attribute(n *onnxpb.NodeProto, name string) *onnxpb.AttributeProto {
	for _, a := range n.Attribute {
		if a.GetName() == name {
			return a
		}
	}
	return nil
}

// intAttribute returns an integer attribute of a node, 0 without.
func intAttribute(n *onnxpb.NodeProto, name string) int64 { return attribute(n, name).GetI() }

// intAttributeOr returns an integer attribute of a node, or its default.
func intAttributeOr(n *onnxpb.NodeProto, name string, otherwise int64) int64 {
	if a := attribute(n, name); a != nil {
		return a.GetI()
	}
	return otherwise
}

// floatAttributeOr returns an attribute of a node, or its default.
func floatAttributeOr(n *onnxpb.NodeProto, name string, otherwise float32) float32 {
	if a := attribute(n, name); a != nil {
		return a.GetF()
	}
	return otherwise
}

func hasInput(n *onnxpb.NodeProto, i int) bool { return i < len(n.Input) && n.Input[i] != "" }

// parameter names the first of the attributes that a node takes from the call of
// the function it is in.
func parameter(n *onnxpb.NodeProto, names ...string) string {
	for _, a := range n.Attribute {
		if a.GetRefAttrName() != "" && slices.Contains(names, a.GetName()) {
			return a.GetName()
		}
	}
	return ""
}

// subgraphs lists the graphs that an attribute holds.
func subgraphs(a *onnxpb.AttributeProto) []*onnxpb.GraphProto {
	if a.G == nil {
		return a.Graphs
	}
	return append([]*onnxpb.GraphProto{a.G}, a.Graphs...)
}

func walkGraphs(g *onnxpb.GraphProto, visit func(*onnxpb.GraphProto)) {
	visit(g)
	walkSubgraphs(g.Node, visit)
}

func walkSubgraphs(nodes []*onnxpb.NodeProto, visit func(*onnxpb.GraphProto)) {
	for _, n := range nodes {
		for _, a := range n.Attribute {
			for _, sub := range subgraphs(a) {
				walkGraphs(sub, visit)
			}
		}
	}
}

// walkNodes visits the nodes of the graph and of the functions, and of all graphs
// in them.
func walkNodes(m *onnxpb.ModelProto, visit func(*onnxpb.NodeProto)) {
	walkGraphs(m.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			visit(n)
		}
	})
	for _, f := range m.Functions {
		walkBody(f.Node, visit)
	}
}

// walkBody visits the nodes of a function, and then those of the graphs in them.
func walkBody(nodes []*onnxpb.NodeProto, visit func(*onnxpb.NodeProto)) {
	for _, n := range nodes {
		visit(n)
	}
	walkSubgraphs(nodes, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			visit(n)
		}
	})
}

// constantTensor returns the tensor that a Constant node holds, or nil.
func constantTensor(n *onnxpb.NodeProto) *onnxpb.TensorProto {
	if n.GetOpType() != "Constant" || !standardDomain(n.GetDomain()) {
		return nil
	}
	return attribute(n, "value").GetT()
}

// standardDomain reports whether a domain is that of the ONNX operators.
func standardDomain(domain string) bool { return domain == "" || domain == "ai.onnx" }

// contribDomain is that of ONNX Runtime's own operators.
const contribDomain = "com.microsoft"

// operatorName is an operator's name with its domain, if that is not ONNX's.
func operatorName(n *onnxpb.NodeProto) string {
	if standardDomain(n.GetDomain()) {
		return n.GetOpType()
	}
	return n.GetDomain() + "." + n.GetOpType()
}

// label names a node, by its output if it has no name.
func label(n *onnxpb.NodeProto) string {
	if n.GetName() == "" && len(n.Output) > 0 {
		return n.Output[0]
	}
	return n.GetName()
}

// describe names a node in a message.
func describe(n *onnxpb.NodeProto) string {
	return fmt.Sprintf("%s node %s", clean(n.GetOpType()), quote(label(n)))
}

func opsetOf(m *onnxpb.ModelProto) int64 {
	version, _ := opset.Of(m.OpsetImport)
	return version
}

// domainOf returns the domain of the ONNX operators as it is imported.
func domainOf(imports []*onnxpb.OperatorSetIdProto) (domain string) {
	for _, o := range imports {
		if standardDomain(o.GetDomain()) {
			domain = o.GetDomain()
		}
	}
	return domain
}

// trainedNames lists the values that training_info binds.
func trainedNames(m *onnxpb.ModelProto) map[string]bool {
	names := map[string]bool{}
	for _, t := range m.TrainingInfo {
		for _, kv := range slices.Concat(t.InitializationBinding, t.UpdateBinding) {
			names[kv.GetKey()] = true
			names[kv.GetValue()] = true
		}
	}
	return names
}

// runtimeInputs are those that no initializer stands for.
func runtimeInputs(g *onnxpb.GraphProto) []*onnxpb.ValueInfoProto {
	stored := map[string]bool{}
	for _, t := range g.Initializer {
		stored[t.GetName()] = true
	}
	return slices.DeleteFunc(slices.Clone(g.Input), func(i *onnxpb.ValueInfoProto) bool { return stored[i.GetName()] })
}

// sizeOf returns the bytes of a tensor's content.
func sizeOf(t *onnxpb.TensorProto) int64 {
	n, _ := dtype.Elements(t.GetDims())
	return dtype.DType(t.GetDataType()).Bytes(n)
}

func sameDomain(x, y string) bool { return x == y || standardDomain(x) && standardDomain(y) }
