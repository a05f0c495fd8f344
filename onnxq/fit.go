package onnxq

import (
	"fmt"
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/onnxq/spec"
	"slices"
)

// fit adapts what was chosen for a weight to its target, and notes what it
// changes. It returns why the weight stays in float, if it does. A block that a
// precision_info asks for is not replaced by another kind.
func (d *decision) fit(x *graph.Graph, opts Options) (obstacle string) {
	c := &d.choice
	o, _ := d.override(opts.Precision)
	asked := o.Block != nil
	r := target.Of(c.target)
	s, ok := r.Support(c.format)
	if !ok {
		return fmt.Sprintf("%s does not take %s", r.Label, c.format)
	}
	if asked && !s.Blocks.Possible(c.block) {
		return fmt.Sprintf("%s takes %s in %s, not %s", r.Label, c.format, s.Blocks, spec.BlockName(c.block))
	}
	if s.Product && slices.ContainsFunc(d.reach.Leaves, reach.Leaf.Convolves) {
		return fmt.Sprintf("%s takes no %s in convolutions", r.Label, c.format)
	}
	if last := c.View[len(c.View)-1]; s.Even && last%2 != 0 {
		return fmt.Sprintf("%s takes %s only where the last axis is even, not %d", r.Label, c.format, last)
	}
	if r.Target == spec.Portable && d.dtype == dtype.BFloat16 && !slices.ContainsFunc(d.reach.Leaves, func(l reach.Leaf) bool { return !l.Cast }) {
		return "it is only cast, and what casts bfloat16 need not decode to it: name a target"
	}
	if r.NoScan && x.Scanned(d.value) {
		return fmt.Sprintf("%s refuses a Scan that reads what is decoded outside of it", r.Label)
	}
	if u, ok := d.otherAxis(); ok && r.OneAxis {
		return fmt.Sprintf("%s goes wrong where a reader sums over another axis: %s", r.Label, u)
	}
	k := c.View[c.Axis]
	if s.EvenSum && k%2 != 0 {
		return fmt.Sprintf("%s computes %s wrongly where the axis summed over is odd, as %d is", r.Label, c.format, k)
	}
	if len(c.View) == 1 && !r.Vectors && c.block != spec.PerChannel && !r.Tables(c.format) {
		if !s.Blocks.PerChannel {
			return fmt.Sprintf("%s cuts no weight of one axis into blocks", r.Label)
		}
		d.remark(fmt.Sprintf("one scale, not block %d: %s cuts no weight of one axis into blocks", c.block, r.Label))
		c.block = spec.PerChannel
	}
	block, ok := s.Blocks.Nearest(c.block, k)
	if !ok {
		return fmt.Sprintf("%s takes %s in %s, and none divides %d", r.Label, c.format, s.Blocks, k)
	}
	if block != c.block {
		d.remark(fmt.Sprintf("%s, not block %d: %s takes %s", spec.BlockName(block), c.block, r.Label, s.Blocks))
		c.block = block
	}
	return ""
}

// unfused says why ONNX Runtime would decode an integer weight behind a
// DequantizeLinear at every run, or wrongly. It is "" where it fuses that with the
// weight's reader, and for other targets.
func (d *decision) unfused(x *graph.Graph) string {
	c := &d.choice
	if !target.Of(c.target).NBits || !c.format.Scaled() {
		return ""
	}
	if len(d.value.Uses) == 0 {
		return "ONNX Runtime does not fuse its DequantizeLinear: a function returns it"
	}
	reader := d.value.Uses[0]
	op, columns := reader.Node.GetOpType(), d.shape[len(d.shape)-1]
	why := ""
	switch {
	case len(d.value.Uses) > 1:
		why = "it has several readers"
	case reader.Node != d.reach.Leaves[0].Node:
		why = op + " lies between"
	case x.Home[reader.Node].Values[d.value.Name] != d.value:
		why = "it is read in a subgraph"
	case op != "MatMul" && op != "Gemm" || reader.Input != 1:
		why = "it is read by " + reader.String()
	case len(d.shape) != 2:
		why = fmt.Sprintf("it has %d axes", len(d.shape))
	case c.Axis != 0:
		why = fmt.Sprintf("its scales lie along axis 1 of %s", reader)
	case c.format.Bits() == 2 && columns%4 != 0:
		return fmt.Sprintf("ONNX Runtime computes it wrongly behind DequantizeLinear: %d columns are no multiple of 4", columns)
	case c.block != spec.PerChannel && !slices.Contains(target.FusedBlocks, c.block):
		why = fmt.Sprintf("its blocks are of %d", c.block)
	default:
		return ""
	}
	return "ONNX Runtime does not fuse its DequantizeLinear: " + why
}

// otherAxis finds a reader that does not sum over the axis along which blocks
// run.
func (d *decision) otherAxis() (reader graph.Use, ok bool) {
	for _, l := range d.reach.Leaves {
		o, weight, why := l.Operand(d.shape)
		if weight && (why != "" || o.Axis != d.choice.Axis || !slices.Equal(o.View, d.choice.View)) {
			return l.Use, true
		}
	}
	return graph.Use{}, false
}
