package discover

import (
	"fmt"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/operands"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/spec"
)

// Layer is a product of a value and a weight. It is in the main graph or in a branch of an If, in
// the model with its functions inlined.
type Layer struct {
	Operation operands.Operation
	Node      *onnxpb.NodeProto
	Input     *graph.Value // the value that has the rows
	Second    *graph.Value // first hidden states of a Recurrence, router logits of Experts, or nil
	Output    *graph.Value // the product, with or without a bias; nil: no value has it
	Beside    *graph.Value // the residual to which the product, with or without a bias, is added; or nil
}

// unseen explains why a product cannot be observed. A value in a loop has many contents, and so has
// a value in a function that cannot be inlined. See graph.Observable for names.
const unseen = "its product is in a loop, in a function of another opset, or in a branch that reuses outer names"

// layersOf returns the products in the observed graph whose second factor is the weight. If there
// are none, why explains it.
func (d *Decision) layersOf(c Choice, x, observed *graph.Graph) (all []Layer, why string) {
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
	var taken, read []reach.Leaf // by a Gather, and by others, whose products do for all
	for _, l := range leaves {
		if l.Takes() {
			taken = append(taken, l)
		} else {
			read = append(read, l)
		}
	}
	if all, why = d.layersAt(c, x, read); why == "" && len(all) == 0 {
		all, why = d.layersAt(c, x, taken)
	}
	if why == "" && len(all) == 0 {
		why = "calibration is for weights of MatMul, Gemm, Conv, LSTM, GRU, RNN and MoE"
	}
	return all, why
}

// layersAt is layersOf for some readers. It returns none, and no reason, if none of them makes a product.
func (d *Decision) layersAt(c Choice, x *graph.Graph, leaves []reach.Leaf) (all []Layer, why string) {
	across := false
	for _, l := range leaves {
		if !graph.IsStandard(l.Node.GetDomain()) && !readsExperts(l) {
			continue
		}
		seen := func(v *graph.Value) bool { return v == nil || x.Observable(l.Node, v) }
		var one Layer
		switch l.Node.GetOpType() {
		case "MatMul", "Gemm":
			one, why = product(c, x, l)
		case "Conv":
			one, why = d.convolution(x, l)
		case "LSTM", "GRU", "RNN":
			one, why = d.recurrence(x, l)
		case "MoE":
			one, why = d.mixture(x, l)
		case "Gather", "GatherND":
			if one, why = d.chosen(c, x, l); one.Node == nil && why == "" {
				continue
			}
			if why == alongColumns { // other reasons come first
				across, why = true, ""
			}
		default:
			continue
		}
		switch {
		case why != "":
			return nil, why
		case l.Call || l.Held || !seen(one.Input) || !seen(one.Second) || !seen(one.Output):
			return nil, unseen
		case one.Input == nil || one.Input.Tensor != nil:
			return nil, "its product has no input"
		}
		if one.Node == nil {
			one.Node = l.Node
		}
		if !seen(one.Beside) {
			one.Beside = nil
		}
		if all = append(all, one); one.Operation.Parts() != all[0].Operation.Parts() {
			return nil, "its products have different numbers of groups"
		}
		if len(all) > 1 && (one.routed() || all[0].routed()) {
			if readsExperts(l) {
				return nil, "several operators read its experts"
			}
			return nil, "several operators read matrices of the stack"
		}
	}
	if across {
		return nil, alongColumns
	}
	return all, ""
}

// ProductsOf returns the products of a weight with static codes; none if some cannot be observed.
func (d *Decision) ProductsOf(x *graph.Graph) []Layer {
	all, _ := d.layersOf(*d.Choice, x, x)
	return slices.DeleteFunc(all, Layer.routed)
}

// routed reports whether rows go to parts of the weight of their own.
func (l Layer) routed() bool {
	_, routed := l.Operation.(operands.Routed)
	return routed
}

// product returns the layer of a MatMul or Gemm.
func product(c Choice, x *graph.Graph, l reach.Leaf) (Layer, string) {
	out := x.Made(l.Node)
	one := len(c.Operand.View) == 2
	if v := c.Operand.View; len(v) == 3 && l.Node.GetOpType() == "MatMul" && l.Input == 1 && c.Operand.Axis == 1 && v[0] <= mostExperts && l.Layout.Stacked(v[0], v[1], v[2]) {
		if one = v[0] == 1; !one {
			return Layer{Operation: operands.Stack{N: int(v[0]), Width: int(v[1])}, Input: x.Source(l.Node, 0)}, ""
		}
	}
	switch {
	case !one:
		return Layer{}, "calibration is for matrices"
	case l.Input != 1 || graph.IntAttribute(l.Node, "transA") != 0:
		return Layer{}, "calibration is for the second factor of a product"
	case out == nil:
		return Layer{}, "its product has no name"
	}
	return Layer{Operation: operands.Matrix{}, Input: x.Source(l.Node, 0), Output: out, Beside: beside(x, out)}, ""
}

// convolution returns the layer of a Conv.
func (d *Decision) convolution(x *graph.Graph, l reach.Leaf) (Layer, string) {
	const odd = "its convolution has unusual attributes"
	spatial := len(d.Shape) - 2
	switch {
	case l.Input != 1 || spatial < 1 || !l.Layout.Is(d.Shape):
		return Layer{}, "calibration is for kernels that a convolution reads as they are stored"
	case x.Made(l.Node) == nil:
		return Layer{}, "its product has no name"
	}
	c := operands.Convolution{
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

// spatialInts returns the n numbers of an attribute, each at least least, which is also the
// default. It returns nil if the numbers are not supported.
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

// recurrence returns the layer of an LSTM, a GRU or an RNN. One weight multiplies the input, the
// other the hidden states.
func (d *Decision) recurrence(x *graph.Graph, l reach.Leaf) (Layer, string) {
	switch {
	case !l.Layout.Is(d.Shape):
		return Layer{}, "calibration is for weights that " + l.Node.GetOpType() + " reads as they are stored"
	case l.Input == 1:
		return Layer{Operation: operands.Matrix{}, Input: x.Source(l.Node, 0)}, ""
	case l.Node.GetOpType() == "GRU" && graph.IntAttribute(l.Node, "linear_before_reset") == 0:
		return Layer{}, "no value of the model has what the reset gate leaves of the hidden states"
	}
	initial := x.Source(l.Node, 5)
	if initial != nil && initial.Tensor != nil {
		initial = nil // usually zeros
	}
	directions, direction := d.Shape[0], string(graph.Attribute(l.Node, "direction").GetS())
	if states := x.Outputs(l.Node); len(states) > 0 && states[0] != nil && (directions == 2) == (direction == "bidirectional") && directions <= 2 {
		r := operands.Recurrence{Directions: directions, Reverse: direction == "reverse", BatchFirst: graph.IntAttribute(l.Node, "layout") != 0}
		return Layer{Operation: r, Input: states[0], Second: initial}, ""
	}
	return Layer{}, "its hidden states are no output of " + l.Node.GetOpType()
}

// beside returns the residual: the computed value to which a product is added, possibly after a
// stored bias.
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

// calibrated finds the layers by which a weight can be calibrated. A weight without layers gets
// algorithm mse.
func (d *Decision) calibrated(c Choice, x *graph.Graph, opts Options, better string) Choice {
	if !c.Algorithm.Calibrated() || !opts.Calibrated {
		return c
	}
	var why string
	var lacking int64
	switch d.Layers, why = d.layersOf(c, x, opts.Observed); {
	case better != "":
		why = better
	case why == "" && c.Format.Encoding() != nil && c.Format.Encoding().Form.Join == nil:
		why = "calibration needs an encoding whose blocks can be made of their parts"
	case why == "":
		k, parts := c.Operand.View[c.Operand.Axis], int64(d.Layers[0].Operation.Parts())
		need := 4 * k * k * parts
		if r, routed := d.Layers[0].Operation.(operands.Routed); routed { // one expert at a time
			need = 4*k*k + r.Kept()
		} else if c.Algorithm == spec.Best {
			need += 4 * shapes.Count(d.Shape)
		}
		if why = tooLarge(need, opts.Memory); why != "" {
			lacking = leastMemory(need)
		}
	}
	if why != "" {
		d.Layers = nil
		d.miss(opts.Asked.Calibration && better == "", Unmet{Setting: "calib", Got: string(spec.MSE), Why: why, Memory: lacking})
		c.Algorithm = spec.MSE
		d.remark("algorithm mse: " + why)
	}
	return c
}

// tooLarge returns a reason if the moments of inputs do not fit into memory, or "".
func tooLarge(need, memory int64) string {
	if need > memory/4*3 {
		return fmt.Sprintf("calibration needs --memory of %d MiB or more", leastMemory(need)>>20)
	}
	return ""
}

// leastMemory is the least value of --memory, in whole MiB, three quarters of which exceed need. The last quarter is for
// what finds the codes.
func leastMemory(need int64) int64 { return (need/3*4>>20 + 1) << 20 }
