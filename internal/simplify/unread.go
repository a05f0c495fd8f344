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
		for _, r := range e.shapeReaders(v, v.Tensor.GetDims(), 0) {
			n := e.copied().Node(r.node)
			made := shapeOf(r.node, r.dims)
			n.OpType, n.Domain, n.Input = new("Constant"), nil, nil
			n.Attribute = []*onnxpb.AttributeProto{{Name: new("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: made}}
			e.model.Shapes++
		}
	}
}

// shapeReader is a node that reads the shape dims of a constant.
type shapeReader struct {
	node *onnxpb.NodeProto
	dims []int64
}

// shapeReaders lists the readers of a value with a shape, if all of them read nothing but the shape, perhaps behind
// nodes that pass the value on; else none.
func (e *editor) shapeReaders(v *graph.Value, dims []int64, depth int) (all []shapeReader) {
	if len(v.Uses) == 0 || depth > deepest || e.needed(v) {
		return nil
	}
	for _, u := range v.Uses {
		n, next := u.Node, dims
		switch {
		case readsShape(n):
			all = append(all, shapeReader{n, dims})
			continue
		case len(n.Output) != 1 || n.Output[0] == "" || u.Input != 0:
			return nil
		case graph.IsOperator(n, "Identity"), graph.IsOperator(n, "Cast"):
		case graph.IsOperator(n, "Transpose") && graph.Parameter(n, "perm") == "":
			if next = turned(dims, graph.Attribute(n, "perm").GetInts()); next == nil {
				return nil
			}
		default:
			return nil
		}
		behind := e.shapeReaders(e.Made(n), next, depth+1)
		if behind == nil {
			return nil
		}
		all = append(all, behind...)
	}
	return all
}

// turned is a shape behind a Transpose; nil if the axes are none. Without axes, they are reversed.
func turned(dims, perm []int64) []int64 {
	made := slices.Clone(dims)
	if perm == nil {
		slices.Reverse(made)
		return made
	}
	if len(perm) != len(dims) {
		return nil
	}
	for i, p := range perm {
		if p < 0 || p >= int64(len(dims)) {
			return nil
		}
		made[i] = dims[p]
	}
	return made
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
var passive = []string{"Constant", "Identity", "Transpose", "Cast"}

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
