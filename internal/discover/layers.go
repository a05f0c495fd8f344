package discover

import (
	"fmt"

	"onnxquant/internal/graph"
	"onnxquant/onnxq/spec"
)

// Layer is a product in the main graph: a value times a weight.
type Layer struct {
	Input  *graph.Value
	Output *graph.Value
	Beside *graph.Value // value that the product, perhaps with a bias, is added to; or nil
}

// layersOf returns the products that a weight is the second factor of. why explains that they
// cannot be observed.
func (d *Decision) layersOf(x *graph.Graph) (all []Layer, why string) {
	o := d.Choice.Operand
	if d.unknown != "" || d.Override.Axis != nil || len(o.View) != 2 {
		return nil, "calibration is for matrices"
	}
	for _, l := range d.Reach.Leaves {
		n, op := l.Node, l.Node.GetOpType()
		switch {
		case !graph.IsStandard(n.GetDomain()) || op != "MatMul" && op != "Gemm":
			continue
		case l.Input != 1 || graph.IntAttribute(n, "transA") != 0:
			return nil, "calibration is for the second factor of a product"
		case l.Call || l.Held || x.Home(n).Graph != x.File.Proto.Graph:
			return nil, "its product is in a function or in a subgraph"
		}
		in, out := x.Source(n, 0), x.Made(n)
		if in == nil || out == nil || in.Tensor != nil {
			return nil, "its product has no input"
		}
		all = append(all, Layer{in, out, beside(x, out)})
	}
	if len(all) == 0 {
		return nil, "calibration is for weights of MatMul and Gemm"
	}
	return all, ""
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
	c := &d.Choice
	if c.Algorithm != spec.GPTQ && (c.Algorithm != spec.Best || !opts.Calibrated) {
		return
	}
	var why string
	switch d.Layers, why = d.layersOf(x); {
	case better != "":
		why = better
	case why == "":
		k := c.Operand.View[c.Operand.Axis]
		if need := 4 * k * k; c.Algorithm == spec.Best {
			why = tooLarge(2*need+4*k*c.Operand.View[1-c.Operand.Axis], opts.Memory)
		} else {
			why = tooLarge(need, opts.Memory)
		}
	}
	if why != "" {
		d.Layers = nil
		c.Algorithm = spec.LeastAngle
		d.remark("algorithm mse: " + why)
	}
}

// tooLarge says that the moments of inputs do not fit into a part of the memory, or "".
func tooLarge(need, memory int64) string {
	if need > memory/2 {
		return fmt.Sprintf("calibration needs --memory of %d MiB or more", need>>19+1)
	}
	return ""
}
