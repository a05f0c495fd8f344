package ggufmodel

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/recognize"
	"onnxquant/rules"
)

// candidate is a float tensor that may go into the file.
type candidate struct {
	*graph.Value
	dtype dtype.DType
	dims  []int64 // shape in the model
	bytes int64
	skip  string // why it is left out

	layout
	leaves []reach.Leaf
	name   string   // in the file
	names  []string // in the file, in the model, and of nodes that read it
	role   role
	layer  int
}

// candidates lists the float tensors of the model with the properties that do not depend on other
// tensors.
func candidates(x *graph.Graph, names *rules.Names) []*candidate {
	var all []*candidate
	parts := recognize.Parts(x)
	for _, v := range x.Values {
		c := &candidate{Value: v, dtype: dtype.DType(v.Tensor.GetDataType()), dims: v.Tensor.GetDims(), bytes: graph.SizeOf(v.Tensor), layer: -1}
		if !c.dtype.Float() {
			continue
		}
		all = append(all, c)
		name, wanted := names.For(v.Path)
		switch {
		case c.bytes == 0:
			c.skip = "empty"
		case !wanted:
			c.skip = "left out by name"
		case parts[v] != "":
			c.skip = parts[v]
		case v.Node != nil && len(c.dims) == 0:
			c.skip = "a constant of the graph"
		default:
			c.know(x, name)
		}
	}
	for _, v := range x.Unusual {
		u := v.Unusual()
		all = append(all, &candidate{Value: v, dtype: u.DType, dims: u.Shape, bytes: u.Bytes, skip: "stored as " + u.Form, layer: -1})
	}
	return all
}

// know sets what follows from the graph and the name in the file.
func (c *candidate) know(x *graph.Graph, name string) {
	c.name = name
	c.leaves = reach.Of(x, c.Value, c.dims).Leaves
	c.layout = layoutOf(c.dims, c.leaves)
	c.names = []string{name, c.Path}
	for _, l := range c.leaves {
		c.names = append(c.names, l.Node.GetName())
	}
	c.role, c.layer = roleOf(x, c.names, c.leaves), layerOf(c.names)
}
