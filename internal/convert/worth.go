package convert

import (
	"fmt"
	"slices"

	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/target"
	"onnxquant/spec"
)

// FloatBytes returns the bytes of all float tensors, and the bytes of the quantized ones.
func (p *Plan) FloatBytes() (total, quantized int64) {
	for _, d := range p.Decisions {
		total += d.Bytes
		if d.Quantize {
			quantized += d.Bytes
		}
	}
	return total, quantized
}

// Coverage is the share of the bytes of float tensors that is quantized.
func (p *Plan) Coverage() float64 {
	total, quantized := p.FloatBytes()
	if total == 0 {
		return 0
	}
	return float64(quantized) / float64(total)
}

// checkCoverage returns an error if less than MinCoverage is quantized. The error names the largest
// tensor that stays in float.
func (p *Plan) checkCoverage() error {
	least := p.opts.MinCoverage
	if p.Coverage() >= least {
		return nil
	}
	largest := &discover.Decision{Value: &graph.Value{}}
	for _, d := range p.Decisions {
		if !d.Quantize && d.Bytes > largest.Bytes {
			largest = d
		}
	}
	total, _ := p.FloatBytes()
	return fmt.Errorf("%w: %.1f %% of %d bytes, less than %.1f %%; the largest tensor that stays in float is %s, %d bytes: %s",
		ErrCoverage, 100*p.Coverage(), total, 100*least, msg.Quote(largest.Value.Path), largest.Bytes, largest.Reason)
}

// toyModel is the size of an experiment: smaller models may have an output larger than the input.
const toyModel = 4 << 10

const reasonUseless = "its codes, scales and nodes would be larger than its float values"

// useless finds weights to leave in float, or in the style dq, so that the output is not larger
// than the input. First come weights that quantization does not shrink. If the output is still
// larger, weights follow that save less than their share of the growth of the structure.
func (p *Plan) useless() discover.Exceptions {
	in, out := p.InBytes(), p.Output.Size()-p.recorded
	if in < toyModel || p.opts.Discover.Style == spec.QDQ || len(p.Weights) == 0 {
		return nil
	}
	gain, least := int64(0), int64(1)
	for _, w := range p.Weights {
		gain += w.Decision.Bytes - w.Bytes()
	}
	if out > in && p.static == nil { // what activations add is not the fault of weights
		least = max(1, (out-in+gain)/int64(len(p.Weights)))
	}
	found := discover.Exceptions{}
	for _, w := range p.Weights {
		switch {
		case w.Decision.Bytes-w.Bytes() >= least || w.Choice.Style == spec.StyleStatic:
		case w.Choice.Style == spec.DQ:
			found[w.Value.Path] = discover.Exception{KeepFloat: reasonUseless}
		default:
			found[w.Value.Path] = discover.Exception{ForceDQ: reasonUseless}
		}
	}
	return found
}

// ranBy returns the runtime whose kernels matter to a target. For a portable model that is ONNX
// Runtime.
func ranBy(e *target.Engine) *target.Engine {
	if e.Target == spec.Portable {
		return target.Of(spec.ORT)
	}
	return e
}

// unrunnable finds weights whose format needs an opset at which the target does not run some
// operator of the model. The result has the reasons to leave them in float.
func (p *Plan) unrunnable() discover.Exceptions {
	e, found := p.opts.Discover.Target, discover.Exceptions{}
	if e.Target == spec.Portable {
		return nil // NewPlan warns instead
	}
	for _, w := range p.Weights {
		need := w.Form.Opset()
		if i := slices.IndexFunc(p.losses, func(l rewrite.Loss) bool { return need >= l.Opset }); i >= 0 {
			found[w.Value.Path] = discover.Exception{KeepFloat: fmt.Sprintf("%s needs opset %d, and %s", w.Choice.Format, need, p.losses[i])}
		}
	}
	return found
}
