package discover

import (
	"onnxquant/internal/graph"
	"onnxquant/onnxq/spec"
)

// settleEstimate gives algorithm mse to a weight whose inputs the weights tell nothing about: they
// are the model's own, or computed from these without weights.
func (d *Decision) settleEstimate(x *graph.Graph, opts Options) {
	if d.Choice.Algorithm != spec.Best || opts.Calibrated {
		return
	}
	for _, l := range d.Reach.Leaves {
		op := l.Node.GetOpType()
		if (op == "MatMul" || op == "Gemm") && l.Input < 2 && !isData(x, x.Source(l.Node, 1-l.Input)) {
			return
		}
	}
	d.Choice.Algorithm = spec.LeastAngle
	d.remark("algorithm mse: no weight lies between the model's inputs and this layer, so the weights do not describe what it reads")
}

// mostSteps is how many nodes isData looks at.
const mostSteps = 64

// isData reports whether a value is an input of the model, or computed from inputs without weights:
// tensors with two axes or more.
func isData(x *graph.Graph, v *graph.Value) bool {
	values, seen := []*graph.Value{v}, map[int]bool{}
	for ; len(values) > 0; values = values[1:] {
		v := values[0]
		switch {
		case v == nil: // an input that is left out
		case v.Tensor != nil:
			if axes(v.Tensor.GetDims()) > 1 {
				return false
			}
		case v.Node == nil && x.Scope(x.File.Proto.Graph).Values[v.Name] != v:
			return false // what a function or a loop gets
		case v.Node != nil && !seen[x.Number(v.Node)]:
			seen[x.Number(v.Node)] = true
			values = append(values, x.Inputs(v.Node)...)
		}
		if len(seen) > mostSteps {
			return false
		}
	}
	return true
}

// axes counts the axes with more than one index.
func axes(dims []int64) (n int) {
	for _, d := range dims {
		if d != 1 {
			n++
		}
	}
	return n
}
