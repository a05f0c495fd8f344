package evaluate

import (
	"google.golang.org/protobuf/proto"

	"onnxquant/internal/onnxpb"
)

// called returns the body of a function as a graph, with the attributes of the node that calls it.
func called(f *onnxpb.FunctionProto, n *onnxpb.NodeProto) *onnxpb.GraphProto {
	given := map[string]*onnxpb.AttributeProto{}
	for _, a := range f.GetAttributeProto() { // defaults
		given[a.GetName()] = a
	}
	for _, a := range n.Attribute {
		given[a.GetName()] = a
	}
	g := &onnxpb.GraphProto{Name: f.Name}
	for _, name := range f.Input {
		g.Input = append(g.Input, &onnxpb.ValueInfoProto{Name: &name})
	}
	for _, name := range f.Output {
		g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: &name})
	}
	for _, inner := range f.Node {
		g.Node = append(g.Node, resolved(inner, given))
	}
	return g
}

// resolved returns a node in which references to attributes of the function are these attributes.
func resolved(n *onnxpb.NodeProto, given map[string]*onnxpb.AttributeProto) *onnxpb.NodeProto {
	out := proto.CloneOf(n)
	out.Attribute = nil
	for _, a := range n.Attribute {
		if ref := a.GetRefAttrName(); ref != "" {
			if from := given[ref]; from != nil {
				named := proto.CloneOf(from)
				named.Name = a.Name
				out.Attribute = append(out.Attribute, named)
			}
			continue
		}
		if a.G != nil {
			a = proto.CloneOf(a)
			for i, inner := range a.G.Node {
				a.G.Node[i] = resolved(inner, given)
			}
		}
		out.Attribute = append(out.Attribute, a)
	}
	return out
}
