package convert

import (
	"fmt"
	"slices"

	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/target"
	"onnxquant/onnxq/spec"
)

// FloatBytes returns the bytes of all float tensors, and of those that are quantized.
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

// checkCoverage returns an error if less than MinCoverage is quantized. It names the largest
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
	return fmt.Errorf("%w: %.1f %% of %d bytes, less than %.1f %%; the largest that stays is %s, %d bytes: %s",
		ErrCoverage, 100*p.Coverage(), total, 100*least, msg.Quote(largest.Value.Path), largest.Bytes, largest.Reason)
}

// toyModel is the size below which an output may be larger than its input: such models are
// experiments.
const toyModel = 4 << 10

const reasonUseless = "its codes, scales and nodes would be larger than its float values"

// useless finds the weights to leave in float, or in the style dq, so that the output is not
// larger than the input: first those that are not smaller when quantized. If the output is
// still larger, also those that save less than their share of the growth of the structure.
func (p *Plan) useless() (found []rewrite.Weight) {
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
	for _, w := range p.Weights {
		if w.Decision.Bytes-w.Bytes() < least && w.Choice.Style != spec.StyleStatic {
			found = append(found, w)
		}
	}
	return found
}

// ranBy is the runtime whose kernels matter to a target: a portable model should run in ONNX
// Runtime.
func ranBy(e *target.Engine) *target.Engine {
	if e.Target == spec.Portable {
		return target.Of(spec.ORT)
	}
	return e
}

// unrunnable finds the weights whose format raises the model to an opset at which the target
// does not run one of its operators, with the reasons to leave them in float.
func (p *Plan) unrunnable() map[*graph.Value]string {
	e, reasons := p.opts.Discover.Target, map[*graph.Value]string{}
	if e.Target == spec.Portable {
		return nil // a warning tells
	}
	for _, w := range p.Weights {
		need := w.Form.Opset()
		if i := slices.IndexFunc(p.losses, func(l rewrite.Loss) bool { return need >= l.Opset }); i >= 0 {
			reasons[w.Value] = fmt.Sprintf("%s needs opset %d, and %s", w.Choice.Format, need, p.losses[i])
		}
	}
	return reasons
}
