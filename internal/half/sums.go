package half

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

const reasonSums = "scales sums of codes, which overflow float16"

// keepSums keeps in float32 the nodes that decode the sums of MatMulInteger and ConvInteger. The sums
// overflow float16, and products of two scales vanish in it.
func (c *choice) keepSums() {
	graph.WalkNodes(c.x.File.Proto, func(n *onnxpb.NodeProto) {
		if op := n.GetOpType(); op != "MatMulInteger" && op != "ConvInteger" || !graph.IsStandard(n.GetDomain()) {
			return
		}
		for _, cast := range readers(c.x.Made(n), "Cast") {
			c.keep(cast, reasonSums)
			c.keepScaled(c.x.Made(cast))
		}
	})
}

// keepScaled keeps the products of a sum and its scales, and the bias that is added to them.
func (c *choice) keepScaled(sum *graph.Value) {
	for sums := []*graph.Value{sum}; len(sums) > 0; sums = sums[1:] {
		for _, mul := range readers(sums[0], "Mul") {
			a, b := c.x.Source(mul, 0), c.x.Source(mul, 1)
			if a == sums[0] {
				a = b
			}
			if product := madeBy(a, "Mul"); product != nil && isScale(c.x.Source(product, 0)) && isScale(c.x.Source(product, 1)) {
				c.keep(product, reasonSums)
			} else if !isScale(a) {
				continue
			}
			c.keep(mul, reasonSums)
			c.keepBias(c.x.Made(mul))
			sums = append(sums, c.x.Made(mul))
		}
	}
}

// keepBias keeps the Add of a stored bias, and the Reshape of that.
func (c *choice) keepBias(sum *graph.Value) {
	for _, add := range readers(sum, "Add") {
		for _, v := range c.x.Inputs(add) {
			reshape := madeBy(v, "Reshape")
			if reshape != nil {
				v = c.x.Source(reshape, 0)
			}
			if v == nil || v.Tensor == nil {
				continue
			}
			c.keep(add, reasonSums)
			if reshape != nil {
				c.keep(reshape, reasonSums)
			}
		}
	}
}

// isScale reports whether a value may be the scale of a weight or of an activation.
func isScale(v *graph.Value) bool {
	return v != nil && (v.Tensor != nil || madeBy(v, "DynamicQuantizeLinear") != nil)
}

// madeBy returns the node that makes a value, if it has this operator.
func madeBy(v *graph.Value, op string) *onnxpb.NodeProto {
	if v == nil || v.Node == nil || v.Node.GetOpType() != op || !graph.IsStandard(v.Node.GetDomain()) {
		return nil
	}
	return v.Node
}

// readers returns the nodes with an operator that read a value.
func readers(v *graph.Value, op string) (nodes []*onnxpb.NodeProto) {
	if v == nil {
		return nil
	}
	for _, u := range v.Uses {
		if u.Node.GetOpType() == op && graph.IsStandard(u.Node.GetDomain()) {
			nodes = append(nodes, u.Node)
		}
	}
	return nodes
}
