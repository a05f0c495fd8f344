package sensitivity

import (
	"context"
	"strings"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/half"
	"onnxquant/internal/onnxpb"
)

// exposed writes a copy of a model whose main graph makes the float32 values in bodies of If, too, under their paths. The
// values of the branch that does not run are empty. It returns "" if there are no such values.
func exposed(ctx context.Context, x *graph.Graph) (path string, remove func(), err error) {
	const least = 12 // see none
	if x.Opset < least {
		return "", func() {}, nil
	}
	e := &exposing{x: x, types: half.Types(x)}
	g, found := e.graph(x.File.Proto.GetGraph(), 0)
	if len(found) == 0 {
		return "", func() {}, nil
	}
	m := x.File.Proto
	return writeFloat(ctx, x.File, &onnxpb.ModelProto{IrVersion: m.IrVersion, OpsetImport: m.OpsetImport, Functions: m.Functions, Graph: g}, "bodies.onnx")
}

// exposing is the state of exposed.
type exposing struct {
	x     *graph.Graph
	types func(*graph.Value) dtype.DType
}

// graph returns a copy of a graph, at a depth, whose Ifs hand out the values of their bodies. It lists the paths of these values.
func (e *exposing) graph(own *onnxpb.GraphProto, depth int) (g *onnxpb.GraphProto, paths []string) {
	g = copyOfGraph(own)
	for _, n := range own.GetNode() {
		if !graph.IsOperator(n, "If") {
			g.Node = append(g.Node, n)
			continue
		}
		made, found := e.branches(n, depth)
		g.Node, paths = append(g.Node, made), append(paths, found...)
	}
	return g, paths
}

// branches returns a copy of an If that hands out the values of its bodies.
func (e *exposing) branches(n *onnxpb.NodeProto, depth int) (made *onnxpb.NodeProto, paths []string) {
	made = &onnxpb.NodeProto{Name: n.Name, OpType: n.OpType, Domain: n.Domain, Input: n.Input, Output: n.Output[:len(n.Output):len(n.Output)]}
	var bodies []*onnxpb.GraphProto
	var of [][]string // paths by body
	for _, a := range n.Attribute {
		if a.G == nil {
			made.Attribute = append(made.Attribute, a)
			continue
		}
		g, inner := e.graph(a.G, depth+1)
		g.Output = g.Output[:len(g.Output):len(g.Output)]
		list := inner
		for _, n := range a.G.Node {
			for _, v := range e.x.Outputs(n) {
				if v != nil && v.Tensor == nil && e.types(v) == dtype.Float32 {
					g.Node = append(g.Node, &onnxpb.NodeProto{OpType: new("Identity"), Input: []string{v.Name}, Output: []string{handed(v.Path, depth+1)}})
					list = append(list, v.Path)
				}
			}
		}
		bodies, of, paths = append(bodies, g), append(of, list), append(paths, list...)
		made.Attribute = append(made.Attribute, &onnxpb.AttributeProto{Name: a.Name, Type: a.Type, G: g})
	}
	for i, list := range of {
		for _, path := range list {
			made.Output = append(made.Output, handed(path, depth))
			for k, g := range bodies {
				name := handed(path, depth+1)
				if k != i {
					name = handed(path, depth+1) + "/none"
					g.Node = append(g.Node, none(name))
				}
				typ := onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: new(int32(dtype.Float32))}}}
				g.Output = append(g.Output, &onnxpb.ValueInfoProto{Name: &name, Type: &typ})
			}
		}
	}
	return made, paths
}

// handed is the name under which a body at a depth hands out a value; in the main graph, that is the path of the value.
func handed(path string, depth int) string { return path + strings.Repeat("/out", depth) }

// none makes an empty tensor. The attribute is of opset 12.
func none(name string) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: new("Constant"), Output: []string{name}, Attribute: []*onnxpb.AttributeProto{{
		Name: new("value_floats"), Type: onnxpb.AttributeProto_FLOATS.Enum(),
	}}}
}

// copyOfGraph copies all of a graph but its nodes. The fields are shared.
func copyOfGraph(own *onnxpb.GraphProto) *onnxpb.GraphProto {
	return &onnxpb.GraphProto{
		Name: own.Name, Input: own.Input, Output: own.Output, ValueInfo: own.ValueInfo, Initializer: own.Initializer, SparseInitializer: own.SparseInitializer,
	}
}
