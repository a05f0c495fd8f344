package onnxq

import (
	"fmt"
	"onnxquant/formats/dtype"
	"slices"
)

// fit adapts what was chosen for a weight to its target, and notes what it
// changes. It returns why the weight stays in float, if it does. A block that a
// precision_info asks for is not replaced by another kind.
func (d *decision) fit(x *graphIndex, opts Options) (obstacle string) {
	c := &d.choice
	o, _ := d.override(opts.Precision)
	asked := o.Block != nil
	r := engineOf(c.target)
	s, ok := r.support(c.format)
	if !ok {
		return fmt.Sprintf("%s does not take %s", r.label, c.format)
	}
	if asked && !s.blocks.possible(c.block) {
		return fmt.Sprintf("%s takes %s in %s, not %s", r.label, c.format, s.blocks, blockName(c.block))
	}
	if s.product && slices.ContainsFunc(d.reach.leaves, leaf.convolves) {
		return fmt.Sprintf("%s takes no %s in convolutions", r.label, c.format)
	}
	if last := c.view[len(c.view)-1]; s.even && last%2 != 0 {
		return fmt.Sprintf("%s takes %s only where the last axis is even, not %d", r.label, c.format, last)
	}
	if r.target == Portable && d.dtype == dtype.BFloat16 && !slices.ContainsFunc(d.reach.leaves, func(l leaf) bool { return !l.cast }) {
		return "it is only cast, and what casts bfloat16 need not decode to it: name a target"
	}
	if r.noScan && x.scanned(d.value) {
		return fmt.Sprintf("%s refuses a Scan that reads what is decoded outside of it", r.label)
	}
	if u, ok := d.otherAxis(); ok && r.oneAxis {
		return fmt.Sprintf("%s goes wrong where a reader sums over another axis: %s", r.label, u)
	}
	k := c.view[c.axis]
	if s.evenSum && k%2 != 0 {
		return fmt.Sprintf("%s computes %s wrongly where the axis summed over is odd, as %d is", r.label, c.format, k)
	}
	if len(c.view) == 1 && !r.vectors && c.block != PerChannel && !r.tables(c.format) {
		if !s.blocks.perChannel {
			return fmt.Sprintf("%s cuts no weight of one axis into blocks", r.label)
		}
		d.remark(fmt.Sprintf("one scale, not block %d: %s cuts no weight of one axis into blocks", c.block, r.label))
		c.block = PerChannel
	}
	block, ok := s.blocks.nearest(c.block, k)
	if !ok {
		return fmt.Sprintf("%s takes %s in %s, and none divides %d", r.label, c.format, s.blocks, k)
	}
	if block != c.block {
		d.remark(fmt.Sprintf("%s, not block %d: %s takes %s", blockName(block), c.block, r.label, s.blocks))
		c.block = block
	}
	return ""
}

// unfused says why ONNX Runtime would decode an integer weight behind a
// DequantizeLinear at every run, or wrongly. It is "" where it fuses that with the
// weight's reader, and for other targets.
func (d *decision) unfused(x *graphIndex) string {
	c := &d.choice
	if !engineOf(c.target).nbits || !c.format.scaled() {
		return ""
	}
	if len(d.value.uses) == 0 {
		return "ONNX Runtime does not fuse its DequantizeLinear: a function returns it"
	}
	reader := d.value.uses[0]
	op, columns := reader.node.GetOpType(), d.shape[len(d.shape)-1]
	why := ""
	switch {
	case len(d.value.uses) > 1:
		why = "it has several readers"
	case reader.node != d.reach.leaves[0].node:
		why = op + " lies between"
	case x.home[reader.node].values[d.value.name] != d.value:
		why = "it is read in a subgraph"
	case op != "MatMul" && op != "Gemm" || reader.input != 1:
		why = "it is read by " + reader.String()
	case len(d.shape) != 2:
		why = fmt.Sprintf("it has %d axes", len(d.shape))
	case c.axis != 0:
		why = fmt.Sprintf("its scales lie along axis 1 of %s", reader)
	case c.format.Bits() == 2 && columns%4 != 0:
		return fmt.Sprintf("ONNX Runtime computes it wrongly behind DequantizeLinear: %d columns are no multiple of 4", columns)
	case c.block != PerChannel && !slices.Contains(fusedBlocks, c.block):
		why = fmt.Sprintf("its blocks are of %d", c.block)
	default:
		return ""
	}
	return "ONNX Runtime does not fuse its DequantizeLinear: " + why
}

// otherAxis finds a reader that does not sum over the axis along which blocks
// run.
func (d *decision) otherAxis() (reader use, ok bool) {
	for _, l := range d.reach.leaves {
		o, weight, why := l.operand(d.shape)
		if weight && (why != "" || o.axis != d.choice.axis || !slices.Equal(o.view, d.choice.view)) {
			return l.use, true
		}
	}
	return use{}, false
}
