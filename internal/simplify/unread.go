package simplify

import (
	"encoding/binary"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// shapesOfConstants replaces the readers of constants that are read for their shape alone: they become constants
// themselves.
func (e *editor) shapesOfConstants() {
	for _, v := range e.Values {
		if len(v.Uses) == 0 || e.needed(v) || slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return !readsShape(u.Node) }) {
			continue
		}
		for _, u := range v.Uses {
			n := e.copied().Node(u.Node)
			made := shapeOf(u.Node, v.Tensor.GetDims())
			n.OpType, n.Domain, n.Input = new("Constant"), nil, nil
			n.Attribute = []*onnxpb.AttributeProto{{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: made}}
			e.model.Shapes++
		}
	}
}

// needed reports whether somebody outside of the graph may read or replace a stored value.
func (e *editor) needed(v *graph.Value) bool {
	return v.Output || v.Input && !v.MustBeInput || e.find.trained[v.Name] || len(v.Yields())+len(v.Returned()) > 0
}

// readsShape reports whether a node reads nothing but the shape of its input.
func readsShape(n *onnxpb.NodeProto) bool {
	return (graph.IsOperator(n, "Shape") || graph.IsOperator(n, "Size")) && len(n.Output) == 1 && graph.Parameter(n, "start", "end") == ""
}

// shapeOf is what a Shape or Size of a tensor returns.
func shapeOf(n *onnxpb.NodeProto, dims []int64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{DataType: new(int32(dtype.Int64))}
	if n.GetOpType() == "Size" {
		t.RawData = binary.LittleEndian.AppendUint64(nil, uint64(shapes.Count(dims)))
		return t
	}
	rank := int64(len(dims))
	bound := func(name string, otherwise int64) int64 {
		at := graph.IntAttributeOr(n, name, otherwise)
		if at < 0 {
			at += rank
		}
		return min(max(at, 0), rank)
	}
	start, end := bound("start", 0), bound("end", rank)
	list := dims[start:max(start, end)]
	t.Dims, t.RawData = []int64{int64(len(list))}, []byte{}
	for _, d := range list {
		t.RawData = binary.LittleEndian.AppendUint64(t.RawData, uint64(d))
	}
	return t
}

// countUnread counts the stored tensors that nothing reads.
func (e *editor) countUnread() {
	for _, v := range e.Values {
		if len(v.Uses) == 0 && !e.needed(v) {
			e.copied()
			e.model.Unread++
		}
	}
}

// passive are operators whose nodes go if nothing reads what they make of constants.
var passive = []string{"Constant", "Identity", "Transpose"}

// sweep removes what nothing reads: stored tensors, and nodes that pass them on.
func (e *editor) sweep() {
	m := e.copy.Proto
	for {
		read := map[string]bool{}
		graph.WalkAllGraphs(m, func(g *onnxpb.GraphProto) {
			for _, o := range g.Output {
				read[o.GetName()] = true
			}
		})
		for _, fn := range m.Functions {
			for _, name := range fn.Output {
				read[name] = true
			}
		}
		graph.WalkNodes(m, func(n *onnxpb.NodeProto) {
			for _, name := range n.Input {
				read[name] = true
			}
		})
		gone := false
		graph.WalkAllGraphs(m, func(g *onnxpb.GraphProto) {
			gone = e.sweepNodes(&g.Node, &g.ValueInfo, read) || e.sweepTensors(g, read) || gone
		})
		for _, fn := range m.Functions {
			gone = e.sweepNodes(&fn.Node, &fn.ValueInfo, read) || gone
		}
		if !gone {
			return
		}
	}
}

func (e *editor) sweepNodes(nodes *[]*onnxpb.NodeProto, infos *[]*onnxpb.ValueInfoProto, read map[string]bool) bool {
	unread := func(n *onnxpb.NodeProto) bool {
		return graph.IsStandard(n.GetDomain()) && slices.Contains(passive, n.GetOpType()) && len(n.Output) == 1 && !read[n.Output[0]] && !e.find.trained[n.Output[0]]
	}
	names := map[string]bool{}
	for _, n := range *nodes {
		if unread(n) {
			names[n.Output[0]] = true
		}
	}
	if len(names) == 0 {
		return false
	}
	*nodes = slices.DeleteFunc(slices.Clone(*nodes), unread)
	*infos = slices.DeleteFunc(*infos, func(v *onnxpb.ValueInfoProto) bool { return names[v.GetName()] })
	return true
}

func (e *editor) sweepTensors(g *onnxpb.GraphProto, read map[string]bool) bool {
	names := map[string]bool{}
	for _, t := range g.Initializer {
		v := e.copy.Value(t)
		if !read[t.GetName()] && !e.find.trained[t.GetName()] && (v == nil || !v.Input || v.MustBeInput) {
			names[t.GetName()] = true
		}
	}
	if len(names) == 0 {
		return false
	}
	g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return names[t.GetName()] })
	named := func(v *onnxpb.ValueInfoProto) bool { return names[v.GetName()] }
	g.Input, g.ValueInfo = slices.DeleteFunc(g.Input, named), slices.DeleteFunc(g.ValueInfo, named)
	return true
}
