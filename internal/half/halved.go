package half

import (
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// halved reports whether a value becomes half.
func (c *choice) halved(v *graph.Value) bool {
	n := v.Node
	switch {
	case !c.types[v].float() || c.far[v] != "":
		return false
	case n == nil && v.Tensor != nil:
		if v.Output { // it has its graph's type
			return (!v.Input || v.MustBeInput) && c.handedBy(c.homes[v].owner)
		}
		return (!v.Input || v.MustBeInput) && c.wished(v)
	case n == nil && v.Unusual() != nil:
		return false
	case n == nil:
		return c.inputHalved(v)
	case c.stays(n):
		return false
	case flexible(n):
		if c.otherHalf != nil && !sparse(v) {
			if half, known := c.otherHalf(n); known {
				return half
			}
		}
		return !sparse(v) && c.wished(v)
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

// inputHalved decides for an input of a graph or function.
func (c *choice) inputHalved(v *graph.Value) bool {
	if f := c.homes[v].function; f != nil {
		return c.functionHalved(f)
	}
	return c.handed(v)
}

// handed reports whether what v's graph takes or gives becomes half.
func (c *choice) handed(v *graph.Value) bool {
	return c.handedBy(c.homes[v].owner)
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

// wished reports whether a reader of a value wants half.
func (c *choice) wished(v *graph.Value) bool {
	for _, u := range v.Uses {
		if c.wants(u.Node, u.Input) == half {
			return true
		}
	}
	return v.Output && c.handed(v) || len(v.Returned()) > 0 && c.functionHalved(v.Body)
}

func (c *choice) functionHalved(f *graph.Function) bool {
	return len(f.Calls) > 0 && !c.stays(f.Calls[0])
}

// handedBy reports whether the inputs and outputs of a graph become half. owner is the node
// whose subgraph it is, nil for the main graph.
func (c *choice) handedBy(owner *onnxpb.NodeProto) bool {
	if owner != nil {
		return carries(owner) && !c.stays(owner)
	}
	return !c.opts.KeepIO
}
