package onnxq

import (
	"fmt"
	"onnxquant/internal/graph"
	"onnxquant/internal/msg"
	"onnxquant/internal/target"
	"onnxquant/onnxq/spec"
)

// describe makes the public plan.
func (c *conversion) describe(decisions []*decision, but exceptions) *Plan {
	before, after := c.model.file.Proto, c.to.out.proto
	p := &Plan{
		OpsetBefore: graph.Opset(before),
		OpsetAfter:  graph.Opset(after),
		IRBefore:    before.GetIrVersion(),
		IRAfter:     after.GetIrVersion(),
		InBytes:     c.model.Size(),
		OutBytes:    c.to.out.size(),
		External:    c.to.out.external(),
		Tensors:     []TensorPlan{},
		conv:        c,
	}
	weights := map[*decision]*weight{}
	for _, w := range c.to.weights {
		weights[w.d] = w
	}
	var bytes, elements int64 // of what is quantized
	for _, d := range decisions {
		t := d.describe()
		if w := weights[d]; w != nil {
			w.planned = len(p.Tensors)
			w.describe(&t)
			p.quantized += t.Bytes
			bytes += t.OutBytes
			elements += w.elements()
		}
		p.total += t.Bytes
		p.Tensors = append(p.Tensors, t)
		if o, ok := d.override(c.opts.Precision); ok && !d.quantize && d.choice.format != spec.Float && o != (spec.Override{}) && (o.Format == nil || *o.Format != spec.Float) {
			p.warn("%s stays in float though precision_info names it: %s", msg.Quote(d.value.Path), d.reason)
		}
		if why := but.left[d.value.Tensor]; why != "" && why != reasonUseless {
			p.warn("%s stays in float: %s", msg.Quote(d.value.Path), d.reason)
		}
	}
	if p.total > 0 {
		p.Coverage = float64(p.quantized) / float64(p.total)
	}
	if elements > 0 {
		p.BitsPerWeight = bitsPer(bytes, elements)
	}
	c.warnings(p)
	return p
}

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// warnings adds what is to be known of the output as a whole.
func (c *conversion) warnings(p *Plan) {
	e := target.Of(c.opts.Target)
	if e.Opset != 0 && p.OpsetAfter > e.Opset {
		p.warn("the output is of opset %d, but %s loads models up to %d", p.OpsetAfter, e.Name, e.Opset)
	}
	if e.IR != 0 && p.IRAfter > e.IR {
		p.warn("the output is of IR version %d, but %s loads models up to %d", p.IRAfter, e.Name, e.IR)
	}
	for _, w := range c.to.weights {
		if w.defectInORT() {
			p.warn("%s: ONNX Runtime 1.31 computes 2-bit weights wrongly where columns (%d) are no multiple of 4, unless graph optimization is off", msg.Quote(w.d.value.Path), w.inner)
		}
	}
	switch {
	case len(c.to.weights) == 0:
		p.warn("nothing is quantized: no weight was selected")
	case p.OutBytes > p.InBytes && c.opts.Style == spec.QDQ:
		p.warn("the output is larger than the input (%d bytes against %d): the style qdq keeps the float weights", p.OutBytes, p.InBytes)
	case p.OutBytes > p.InBytes:
		p.warn("the output is larger than the input (%d bytes against %d): its weights are too small to gain", p.OutBytes, p.InBytes)
	}
}

// describe says what a tensor is and why it stays.
func (d *decision) describe() TensorPlan {
	t := TensorPlan{
		Name:      d.value.Path,
		DType:     d.dtype.String(),
		Shape:     append([]int64{}, d.shape...),
		Bytes:     d.bytes,
		Consumers: []string{},
		Nodes:     []string{},
		Decision:  Keep,
		Reason:    d.reason,
	}
	t.OutBytes = t.Bytes
	for _, u := range d.value.Uses {
		t.Consumers = append(t.Consumers, u.String())
		t.Nodes = append(t.Nodes, graph.Label(u.Node))
	}
	return t
}

// describe says what a weight becomes.
func (w *weight) describe(t *TensorPlan) {
	t.Decision = Quantize
	t.Format, t.Axis, t.Block = w.d.choice.format, w.d.choice.Axis, w.d.choice.block
	t.Form, t.Note = w.formName(), w.d.note
	t.OutBytes = w.size()
	if w.d.choice.style == spec.QDQ {
		t.OutBytes += t.Bytes
	}
	t.BitsPerWeight = bitsPer(t.OutBytes, w.elements())
}

func bitsPer(bytes, elements int64) float64 { return 8 * float64(bytes) / float64(elements) }

// toyModel is a size below which an output may be larger than its input: models
// that small are for trying things out.
const toyModel = 4 << 10

const reasonUseless = "its codes, scales and nodes would take more room than its floats"

// useless finds the weights to leave in float, or in a plainer form, for the
// output not to be larger than the input: those that take as much room quantized,
// and if that is not enough, those that gain less than what the structure grows
// by for each.
func (p *Plan) useless() (found []*weight) {
	c := p.conv
	if p.InBytes < toyModel || c.opts.Style == spec.QDQ || len(c.to.weights) == 0 {
		return nil
	}
	least := int64(1)
	if p.OutBytes > p.InBytes {
		least = max(1, (p.OutBytes-p.InBytes+p.gain())/int64(len(c.to.weights)))
	}
	for _, w := range c.to.weights {
		if graph.SizeOf(w.d.value.Tensor)-w.size() < least {
			found = append(found, w)
		}
	}
	return found
}

// gain is what the contents of weights shrink by.
func (p *Plan) gain() int64 {
	n := int64(0)
	for _, w := range p.conv.to.weights {
		n += graph.SizeOf(w.d.value.Tensor) - w.size()
	}
	return n
}

// checkCoverage fails if less than a share of the bytes of float tensors is
// quantized. It names the largest tensor that is not.
func (p *Plan) checkCoverage(least float64) error {
	if p.Coverage >= least {
		return nil
	}
	var largest TensorPlan
	for _, t := range p.Tensors {
		if t.Decision == Keep && t.Bytes > largest.Bytes {
			largest = t
		}
	}
	return fmt.Errorf("%w: %.1f %% of %d bytes, less than %.1f %%; the largest that stays is %s, %d bytes: %s",
		ErrCoverage, 100*p.Coverage, p.total, 100*least, msg.Quote(largest.Name), largest.Bytes, largest.Reason)
}
