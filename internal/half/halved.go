package half

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// becomesHalf reports whether a value becomes half.
func (c *choice) becomesHalf(v *graph.Value) bool {
	n := v.Node
	switch {
	case !c.types[v].float() || c.far[v] != "":
		return false
	case n == nil && v.Tensor != nil:
		if v.Output { // it has its graph's type
			return (!v.Input || v.MustBeInput) && c.ownerHalf(c.homes[v].owner)
		}
		return (!v.Input || v.MustBeInput) && c.wantedHalf(v)
	case n == nil && v.Unusual() != nil:
		return false
	case n == nil:
		return c.inputHalf(v)
	case c.staysFloat(n):
		return false
	case flexible(n):
		if c.otherHalf != nil && !sparse(v) {
			if half, known := c.otherHalf(n); known {
				return half
			}
		}
		return !sparse(v) && c.wantedHalf(v)
	case carries(n) || c.x.Called(n) != nil:
		return true
	}
	s := c.signature(n)
	for i, made := range c.x.Outputs(n) {
		if made == v {
			p, ok := s.Output(i)
			return ok && p.Variable != "" && s.Allows(p).Has(c.opts.To)
		}
	}
	return false
}

// inputHalf decides for an input of a graph or function.
func (c *choice) inputHalf(v *graph.Value) bool {
	if f := c.homes[v].function; f != nil {
		return c.functionHalf(f)
	}
	return c.boundaryHalf(v)
}

// boundaryHalf reports whether the inputs and outputs of the graph of v become half.
func (c *choice) boundaryHalf(v *graph.Value) bool {
	return c.ownerHalf(c.homes[v].owner)
}

func sparse(v *graph.Value) bool { return v.Unusual() != nil && v.Unusual().Sparse != nil }

// flexible reports whether a node makes any type that its attributes ask for.
func flexible(n *onnxpb.NodeProto) bool {
	if !graph.IsStandard(n.GetDomain()) {
		return false
	}
	switch n.GetOpType() {
	case "Cast", "Constant", "ConstantOfShape":
		return true
	}
	return false
}

// wantedHalf reports whether a reader of a value wants half.
func (c *choice) wantedHalf(v *graph.Value) bool {
	for _, u := range v.Uses {
		if c.wants(u.Node, u.Input) == half {
			return true
		}
	}
	return v.Output && c.boundaryHalf(v) || len(v.Returned()) > 0 && c.functionHalf(v.Body)
}

func (c *choice) functionHalf(f *graph.Function) bool {
	return len(f.Calls) > 0 && !c.staysFloat(f.Calls[0])
}

// ownerHalf reports whether the inputs and outputs of a graph become half. owner is the node that owns
// the graph; nil for the main graph.
func (c *choice) ownerHalf(owner *onnxpb.NodeProto) bool {
	if owner != nil {
		return carries(owner) && !c.staysFloat(owner)
	}
	return !c.opts.KeepIO
}
