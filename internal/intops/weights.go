package intops

import (
	"cmp"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/recognize"
)

// Weights lists the quantized weights of a model like recognize.Weights. Weights that known operators
// compute with as codes are described as if they were decoded. So are tables whose codes are moved by
// operators before they are decoded.
func Weights(x *graph.Graph) []*recognize.Weight {
	list := recognize.Weights(x)
	m, err := Float(x)
	if err != nil || m.Graph == x {
		return list
	}
	listed := map[string]bool{}
	for _, w := range list {
		listed[w.Codes] = true
	}
	found := map[string]*recognize.Weight{} // by codes
	for _, w := range recognize.Weights(m.Graph) {
		switch {
		case w.Obstacle != "":
		case !listed[w.Codes]:
			w.Form, w.Value, w.Nodes = cmp.Or(m.Forms[w.Codes], w.Form), nil, nil
			list = append(list, w)
		case m.Forms[w.Codes] != "":
			found[w.Codes] = w
		}
	}
	for _, w := range list {
		if f := found[w.Codes]; f != nil && w.Obstacle != "" {
			form, consumers, nodes, name := w.Form, w.Consumers, w.Nodes, w.Name
			*w = *f
			w.Form, w.Consumers, w.Nodes, w.Name, w.Value = form, consumers, nodes, name, nil
		}
	}
	return list
}

// OfFloats reports whether an operator that computes with codes reads those that a QuantizeLinear makes of stored floats: then
// Float leaves it as it is.
func OfFloats(x *graph.Graph) (found bool) {
	graph.WalkGraphs(x.File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			for i := range n.Input {
				v := x.Source(n, i)
				found = found || onCodes(n) && v != nil && v.Node != nil && quantizers[graph.Operator(v.Node)] && constant(x.Source(v.Node, 0))
			}
		}
	})
	return found
}
