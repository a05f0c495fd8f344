package graph

import (
	"slices"

	"onnxquant/internal/onnxpb"
)

// Carried follows a value into a Loop or Scan that hands it unchanged from iteration to iteration.
// inside is the input of the body; behind is the output of the node, nil if omitted. ok is false for
// other nodes and inputs, and if the body may change the value or use it for another output.
func (x *Graph) Carried(u Use) (inside, behind *Value, ok bool) {
	states := x.carried[u.Node]
	i := u.Input - loopOf(u.Node).inputs
	if i < 0 || i >= len(states) || states[i] == nil {
		return nil, nil, false
	}
	return states[i], x.output(u.Node, i), true
}

// Yielded follows a value that a graph returns to the output of the node that owns the graph. behind
// is nil if the output is omitted, or if Carried already leads there. ok is false for the main graph,
// and if the node may change the value.
func (x *Graph) Yielded(y Yield) (behind *Value, ok bool) {
	if isIf(y.Owner) {
		return x.output(y.Owner, y.Output), true
	}
	states := x.carried[y.Owner]
	i := y.Output - loopOf(y.Owner).outputs
	return nil, i >= 0 && i < len(states) && states[i] != nil
}

// Leaves reports whether a value is an output of a graph from which it cannot be followed.
func (x *Graph) Leaves(v *Value) bool {
	for _, y := range v.Yields() {
		if _, ok := x.Yielded(y); !ok {
			return true
		}
	}
	return false
}

// output returns an output of a node, nil if it is omitted.
func (x *Graph) output(n *onnxpb.NodeProto, i int) *Value {
	if made := x.Outputs(n); i < len(made) {
		return made[i]
	}
	return nil
}

// loop says how an operator repeats the graph in its attribute body.
type loop struct {
	inputs  int // of the node, before the states
	outputs int // of the body, before the states
}

// loops are the operators that carry states: the body gets one for each input of the node.
var loops = map[string]loop{
	"Loop": {2, 1}, // trip count, condition; condition
	"Scan": {0, 0},
}

func loopOf(n *onnxpb.NodeProto) loop { return loops[n.GetOpType()] }

func isIf(n *onnxpb.NodeProto) bool { return IsOperator(n, "If") }

// unchanged returns, for each state of a Loop or Scan, the input of the body if the body hands it on
// unchanged, else nil. It returns nil for other nodes.
func (x *Graph) unchanged(n *onnxpb.NodeProto) []*Value {
	shape, ok := loops[n.GetOpType()]
	body := Attribute(n, "body").GetG()
	if !ok || body == nil || !IsStandard(n.GetDomain()) || len(body.Input) != len(n.Input) { // Scan before opset 9 has batches
		return nil
	}
	scanned := IntAttribute(n, "num_scan_inputs")
	states := int64(len(n.Input)-shape.inputs) - scanned
	returned := x.Returned[body]
	if scanned < 0 || states <= 0 || int64(len(returned)-shape.outputs) < states {
		return nil
	}
	times := map[*Value]int{} // that the body returns a value
	for _, v := range returned {
		times[x.origin(v)]++
	}
	kept := make([]*Value, states)
	for i := range kept {
		in := x.arguments[body][shape.inputs+i]
		if in.Tensor == nil && times[in] == 1 && x.origin(returned[shape.outputs+i]) == in {
			kept[i] = in
		}
	}
	return kept
}

// farthestOrigin bounds the number of nodes that origin goes through.
const farthestOrigin = 100

// origin follows a value back to the value that it always equals: through Identity, loops that carry
// it unchanged, and Ifs whose branches all return the same value.
func (x *Graph) origin(v *Value) *Value {
	steps := farthestOrigin
	return x.originWithin(v, &steps)
}

func (x *Graph) originWithin(v *Value, steps *int) *Value {
	for *steps > 0 && v.Node != nil && IsStandard(v.Node.GetDomain()) {
		*steps--
		from := x.equalBefore(v, steps)
		if from == nil {
			break
		}
		v = from
	}
	return v
}

// equalBefore returns a value one step back that v equals; nil if there is none.
func (x *Graph) equalBefore(v *Value, steps *int) *Value {
	n, output := v.Node, slices.Index(x.Outputs(v.Node), v)
	switch {
	case n.GetOpType() == "Identity":
		return x.Source(n, 0)
	case isIf(n):
		var found *Value
		for _, a := range n.Attribute {
			for _, g := range Subgraphs(a) {
				returned := x.Returned[g]
				if output >= len(returned) {
					return nil
				}
				from := x.originWithin(returned[output], steps)
				if found != nil && found != from {
					return nil
				}
				found = from
			}
		}
		return found
	}
	if states := x.carried[n]; output >= 0 && output < len(states) && states[output] != nil {
		return x.Source(n, loopOf(n).inputs+output)
	}
	return nil
}
