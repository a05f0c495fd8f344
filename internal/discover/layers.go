package discover

import (
	"fmt"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/rows"
	"onnxquant/internal/shapes"
	"onnxquant/onnxq/spec"
)

// Layer is a product in the main graph, or in a branch of an If, of the model with its functions inlined: a
// value times a weight.
type Layer struct {
	Operation rows.Operation
	Node      *onnxpb.NodeProto
	Input     *graph.Value // what the rows are in
	Initial   *graph.Value // the first states of a Recurrence; or nil
	Output    *graph.Value // the product, perhaps with a bias; nil: no value has it
	Beside    *graph.Value // value that the product, perhaps with a bias, is added to; or nil
}

// unseen explains that a product cannot be observed: a value in a loop has many contents, and so does one in
// a function that cannot be inlined. See graph.Observable for names.
const unseen = "its product is in a loop, a function of another opset, or a branch with the names of values outside"

// layersOf returns the products that a weight is the second factor of, in the graph that is observed. why
// explains that they cannot be.
func (d *Decision) layersOf(x, observed *graph.Graph) (all []Layer, why string) {
	if d.unknown != "" || d.Override.Axis != nil {
		return nil, "calibration is for matrices"
	}
	leaves := d.Reach.Leaves
	if observed != nil && x != observed {
		x, leaves = observed, nil
		for _, v := range x.Held(d.Value.Tensor) {
			leaves = append(leaves, reach.Of(x, v, d.Shape).Leaves...)
		}
	}
	for _, l := range leaves {
		if !graph.IsStandard(l.Node.GetDomain()) {
			continue
		}
		seen := func(v *graph.Value) bool { return v == nil || x.Observable(l.Node, v) }
		var one Layer
		switch l.Node.GetOpType() {
		case "MatMul", "Gemm":
			one, why = d.product(x, l)
		case "Conv":
			one, why = d.convolution(x, l)
		case "LSTM", "GRU", "RNN":
			one, why = d.recurrence(x, l)
		default:
			continue
		}
		switch {
		case why != "":
			return nil, why
		case l.Call || l.Held || !seen(one.Input) || !seen(one.Initial) || !seen(one.Output):
			return nil, unseen
		case one.Input == nil || one.Input.Tensor != nil:
			return nil, "its product has no input"
		}
		if one.Node = l.Node; !seen(one.Beside) {
			one.Beside = nil
		}
		if all = append(all, one); one.Operation.Parts() != all[0].Operation.Parts() {
			return nil, "its products have different numbers of groups"
		}
	}
	if len(all) == 0 {
		return nil, "calibration is for weights of MatMul, Gemm, Conv, LSTM, GRU and RNN"
	}
	return all, ""
}

// product is the layer of a MatMul or Gemm.
func (d *Decision) product(x *graph.Graph, l reach.Leaf) (Layer, string) {
	out := x.Made(l.Node)
	switch {
	case len(d.Choice.Operand.View) != 2:
		return Layer{}, "calibration is for matrices"
	case l.Input != 1 || graph.IntAttribute(l.Node, "transA") != 0:
		return Layer{}, "calibration is for the second factor of a product"
	case out == nil:
		return Layer{}, "its product has no name"
	}
	return Layer{Operation: rows.Matrix{}, Input: x.Source(l.Node, 0), Output: out, Beside: beside(x, out)}, ""
}

// convolution is the layer of a Conv.
func (d *Decision) convolution(x *graph.Graph, l reach.Leaf) (Layer, string) {
	const odd = "its convolution has unusual attributes"
	spatial := len(d.Shape) - 2
	switch {
	case l.Input != 1 || spatial < 1 || !l.Layout.Is(d.Shape):
		return Layer{}, "calibration is for kernels that a convolution reads as they are stored"
	case x.Made(l.Node) == nil:
		return Layer{}, "its product has no name"
	}
	c := rows.Convolution{
		Groups: graph.IntAttributeOr(l.Node, "group", 1), Kernel: d.Shape[2:],
		Strides: spatialInts(l.Node, "strides", spatial, 1), Dilations: spatialInts(l.Node, "dilations", spatial, 1),
	}
	pads := spatialInts(l.Node, "pads", 2*spatial, 0)
	if c.Strides == nil || c.Dilations == nil || pads == nil || c.Groups < 1 || d.Shape[0]%c.Groups != 0 {
		return Layer{}, odd
	}
	switch same := string(graph.Attribute(l.Node, "auto_pad").GetS()); same {
	case "SAME_UPPER", "SAME_LOWER":
		c.Same = same
	case "VALID":
		clear(pads)
	case "", "NOTSET":
	default:
		return Layer{}, odd
	}
	c.Before, c.After = pads[:spatial], pads[spatial:]
	out := x.Made(l.Node)
	return Layer{Operation: c, Input: x.Source(l.Node, 0), Output: out, Beside: beside(x, out)}, ""
}

// spatialInts returns the n numbers of an attribute, each of which is least by default; nil if they
// are unusual.
func spatialInts(node *onnxpb.NodeProto, name string, n int, least int64) []int64 {
	const greatest = 1 << 20
	list := graph.Attribute(node, name).GetInts()
	if list == nil {
		return slices.Repeat([]int64{least}, n)
	}
	if len(list) != n || slices.Min(list) < least || slices.Max(list) > greatest {
		return nil
	}
	return slices.Clone(list)
}

// recurrence is the layer of an LSTM, a GRU or an RNN: one for what it reads, or one for its hidden
// states.
func (d *Decision) recurrence(x *graph.Graph, l reach.Leaf) (Layer, string) {
	switch {
	case !l.Layout.Is(d.Shape):
		return Layer{}, "calibration is for weights that " + l.Node.GetOpType() + " reads as they are stored"
	case l.Input == 1:
		return Layer{Operation: rows.Matrix{}, Input: x.Source(l.Node, 0)}, ""
	case l.Node.GetOpType() == "GRU" && graph.IntAttribute(l.Node, "linear_before_reset") == 0:
		return Layer{}, "no value of the model has what the reset gate leaves of the hidden states"
	}
	initial := x.Source(l.Node, 5)
	if initial != nil && initial.Tensor != nil {
		initial = nil // zeros, as a rule
	}
	directions, direction := d.Shape[0], string(graph.Attribute(l.Node, "direction").GetS())
	if states := x.Outputs(l.Node); len(states) > 0 && states[0] != nil && (directions == 2) == (direction == "bidirectional") && directions <= 2 {
		r := rows.Recurrence{Directions: directions, Reverse: direction == "reverse", BatchFirst: graph.IntAttribute(l.Node, "layout") != 0}
		return Layer{Operation: r, Input: states[0], Initial: initial}, ""
	}
	return Layer{}, "its hidden states are no output of " + l.Node.GetOpType()
}

// beside returns the computed value that a product is added to, perhaps after a stored bias.
func beside(x *graph.Graph, product *graph.Value) *graph.Value {
	for range 2 {
		if len(product.Uses) != 1 || product.Uses[0].Node.GetOpType() != "Add" || product.Output {
			return nil
		}
		u := product.Uses[0]
		other := x.Source(u.Node, 1-u.Input)
		if other == nil || other.Tensor == nil {
			return other
		}
		if product = x.Made(u.Node); product == nil {
			return nil
		}
	}
	return nil
}

// settleSecondOrder finds what a weight's codes can be calibrated by. A weight without that gets
// algorithm mse.
func (d *Decision) settleSecondOrder(x *graph.Graph, opts Options, better string) {
	c := d.Choice
	if !c.Algorithm.Calibrated() || c.Algorithm == spec.Best && !opts.Calibrated {
		return
	}
	var why string
	switch d.Layers, why = d.layersOf(x, opts.Observed); {
	case better != "":
		why = better
	case why == "" && c.Format.Encoding() != nil && c.Format.Encoding().Form.Join == nil:
		why = "calibration needs an encoding whose blocks can be made of their parts"
	case why == "":
		k, parts := c.Operand.View[c.Operand.Axis], int64(d.Layers[0].Operation.Parts())
		need := 4 * k * k * parts
		if c.Algorithm == spec.Best {
			need += 4*k*k + 4*shapes.Count(d.Shape)
		}
		if why = tooLarge(need, opts.Memory); why != "" {
			d.Lacking = leastMemory(need)
		}
	}
	if why != "" {
		d.Layers, d.Unseen = nil, why == unseen
		c.Algorithm = spec.LeastAngle
		d.remark("algorithm mse: " + why)
	}
}

// tooLarge says that the moments of inputs do not fit into a part of the memory, or "".
func tooLarge(need, memory int64) string {
	if need > memory/2 {
		return fmt.Sprintf("calibration needs --memory of %d MiB or more", leastMemory(need)>>20)
	}
	return ""
}

// leastMemory is the memory, in whole MiB, of which need is a part.
func leastMemory(need int64) int64 { return (need>>19 + 1) << 20 }
