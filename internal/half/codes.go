package half

import (
	"slices"
	"strings"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/optypes"
)

const reasonCodes = "makes, decodes or computes with codes whose scales are float32"

// keepCodes keeps operators that compute with codes in float32, together with the QuantizeLinear and
// DequantizeLinear nodes around them. Most of these operators take no half scale. A scale rounded to
// half would also decode codes to other values.
func (c *choice) keepCodes() {
	var codes []*graph.Value
	graph.WalkNodes(c.x.File.Proto, func(n *onnxpb.NodeProto) {
		if !computesWithCodes(n) {
			return
		}
		codes = append(append(codes, c.x.Inputs(n)...), c.x.Outputs(n)...)
		if c.wantsHalf(n) {
			c.keep(n, reasonCodes)
		}
	})
	seen := map[*graph.Value]bool{}
	for ; len(codes) > 0; codes = codes[1:] {
		v := codes[0]
		if v == nil || seen[v] || v.Tensor != nil || c.types[v].dtype != optypes.Other {
			continue
		}
		seen[v] = true
		if n := v.Node; n != nil {
			if n.GetOpType() == "QuantizeLinear" {
				c.keep(n, reasonCodes)
			}
			codes = append(codes, c.sameTyped(n, v)...)
		}
		for _, u := range v.Uses {
			if u.Node.GetOpType() == "DequantizeLinear" && u.Input == 0 {
				c.keep(u.Node, reasonCodes)
			}
			codes = append(codes, c.sameTyped(u.Node, v)...)
		}
	}
}

// computesWithCodes reports whether an operator reads or makes codes, and takes or makes scales
// for them or for their sums.
func computesWithCodes(n *onnxpb.NodeProto) bool {
	switch op := n.GetOpType(); op {
	case "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "MatMulIntegerToFloat", "QAttention", "QGemm":
		return true
	default:
		return strings.HasPrefix(op, "QLinear")
	}
}

// wantsHalf reports whether a node wants any of its inputs in half.
func (c *choice) wantsHalf(n *onnxpb.NodeProto) bool {
	for i, v := range c.x.Inputs(n) {
		if v != nil && c.types[v].float() && c.wants(n, i) == half {
			return true
		}
	}
	return false
}

// sameTyped returns the inputs and outputs of a node that share the type variable of its first output. It
// returns nil if v is not one of them.
func (c *choice) sameTyped(n *onnxpb.NodeProto, v *graph.Value) (values []*graph.Value) {
	s := c.signature(n)
	if s == nil {
		return nil
	}
	first, ok := s.Output(0)
	if !ok || first.Variable == "" {
		return nil
	}
	for i, in := range c.x.Inputs(n) {
		if p, ok := s.Input(i); ok && p.Variable == first.Variable {
			values = append(values, in)
		}
	}
	for i, out := range c.x.Outputs(n) {
		if p, ok := s.Output(i); ok && p.Variable == first.Variable {
			values = append(values, out)
		}
	}
	if !slices.Contains(values, v) {
		return nil
	}
	return values
}
