package discover

import (
	"onnxquant/internal/graph"
	"onnxquant/spec"
)

// estimated selects algorithm mse for a weight whose inputs cannot be estimated from weights: the
// inputs of the model, and values computed from them without weights.
func (d *Decision) estimated(c Choice, x *graph.Graph, opts Options) Choice {
	if c.Algorithm != spec.Best || opts.Calibrated {
		return c
	}
	for _, l := range d.Reach.Leaves {
		op := l.Node.GetOpType()
		if (op == "MatMul" || op == "Gemm") && l.Input < 2 && !isData(x, x.Source(l.Node, 1-l.Input)) {
			return c
		}
	}
	c.Algorithm = spec.MSE
	const why = "no weight lies between the model's inputs and this layer, so the weights do not describe what it reads"
	d.remark("algorithm mse: " + why)
	d.miss(opts.Asked.Algorithm && opts.Algorithm == spec.Best, Unmet{Setting: "algorithm", Asked: "best", Got: string(spec.MSE), Why: why, Expected: true})
	return c
}

// mostSteps is the largest number of nodes that isData visits.
const mostSteps = 64

// isData reports whether a value with two axes or more is an input of the model, or computed from
// inputs without weights.
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
			return false // a parameter of a function or a loop
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

// axes counts the axes longer than 1.
func axes(dims []int64) (n int) {
	for _, d := range dims {
		if d != 1 {
			n++
		}
	}
	return n
}
