// Package fold does constant folding of Slice, Split and Concat over stored tensors, transposed or not.
// The results are stored, so they can be quantized.
//
// [Find] gets a graph, which it only reads, and returns the groups of tensors that can be folded
// without storing more bytes. [Fold] returns a new graph, in which the groups are folded. The caller
// owns the new graph and must keep the original open. No content is computed in advance: parts are
// read from the original tensors, in pieces, on demand.
package fold

import (
	"slices"
	"strings"

	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Fold returns a graph in which the parts of groups are stored tensors.
func Fold(x *graph.Graph, groups []*Group) (*graph.Graph, error) {
	c, r := x.Copy(), recognizer(x)
	var made []*onnxpb.TensorProto // by part
	for _, g := range groups {
		for _, p := range g.Parts {
			made = append(made, store(c, p, r.Fold(p.Values[0]).Values))
		}
		for _, n := range g.nodes {
			c.Drop(n)
		}
	}
	remove(c, groups)
	c.Tidy()
	view, err := x.File.View(c.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		if old := c.OriginalTensor(t); old != nil {
			return x.File.Payload(old)
		}
		return nil, nil // a part
	})
	if err != nil {
		return nil, err
	}
	from := map[string][]*graph.Value{} // by path
	for _, g := range groups {
		for _, p := range g.Parts {
			if err := view.Replace(made[0], r.Fold(p.Values[0]).Values.Stored); err != nil {
				return nil, err
			}
			from[pathBeside(p.From[0], made[0].GetName())] = slices.Concat(p.From, p.Values)
			made = made[1:]
		}
	}
	y, err := graph.New(view)
	if err != nil {
		return nil, err
	}
	for _, v := range y.Values {
		if values := from[v.Path]; values != nil {
			v.SetFrom(values)
		}
	}
	return y, nil
}

// store adds a tensor for a part to the graph of its wholes, and makes the readers of its values read
// it. It takes the name of the first value, unless the values are in several graphs, where the name
// may be in use.
func store(c *graph.Copy, p Part, values *lazy.Tensor) *onnxpb.TensorProto {
	whole, name := p.From[0], p.Values[0].Name
	if slices.ContainsFunc(p.Values, func(v *graph.Value) bool { return v.Graph != whole.Graph }) {
		name = c.Names.Fresh(name)
	}
	for _, v := range p.Values {
		for _, u := range v.Uses {
			c.Node(u.Node).Input[u.Input] = name
		}
	}
	t := &onnxpb.TensorProto{Name: &name, DataType: new(int32(values.DType)), Dims: values.Shape}
	g := c.Graphs()[c.GraphNumber(whole.Graph)]
	g.Initializer = append(g.Initializer, t)
	return t
}

// pathBeside is the path of the value with this name in the graph of v.
func pathBeside(v *graph.Value, name string) string {
	return strings.TrimSuffix(v.Path, v.Name) + name
}

// remove removes the stored tensors that only dropped nodes read.
func remove(c *graph.Copy, groups []*Group) {
	gone := map[int]map[string]bool{} // names of initializers, by number of the graph
	seen := map[*graph.Value]bool{}
	for _, g := range groups {
		for _, n := range g.nodes {
			for _, v := range c.Original.Inputs(n) {
				if seen[v] {
					continue // many nodes may read it
				}
				seen[v] = true
				switch {
				case !unread(c, v):
				case v.Node != nil: // a Constant
					c.Drop(v.Node)
				default:
					number := c.GraphNumber(v.Graph)
					if gone[number] == nil {
						gone[number] = map[string]bool{}
					}
					gone[number][v.Name] = true
				}
			}
		}
	}
	for number, names := range gone {
		g := c.Graphs()[number]
		g.Initializer = slices.DeleteFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return names[t.GetName()] })
		g.Input = slices.DeleteFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return names[in.GetName()] })
	}
}

// unread reports whether a value is stored and only dropped nodes read it.
func unread(c *graph.Copy, v *graph.Value) bool {
	return v != nil && v.Tensor != nil && len(v.Yields()) == 0 && (!v.Input || v.MustBeInput) &&
		!slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return !c.Dropped(c.Node(u.Node)) })
}
