package discover

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
func (d *Decision) fit(x *graph.Graph, opts Options) (obstacle string) {
	c := &d.Choice
	o, _ := d.Override(opts.Precision)
	asked := o.Block != nil
	r := c.Target
	s, ok := r.Support(c.Format)
	if !ok {
		return fmt.Sprintf("%s does not take %s", r.Label, c.Format)
	}
	if asked && !s.Blocks.Possible(c.Block) {
		return fmt.Sprintf("%s takes %s in %s, not %s", r.Label, c.Format, s.Blocks, spec.BlockName(c.Block))
	}
	if s.Product && slices.ContainsFunc(d.Reach.Leaves, reach.Leaf.Convolves) {
		return fmt.Sprintf("%s takes no %s in convolutions", r.Label, c.Format)
	}
	if last := c.Operand.View[len(c.Operand.View)-1]; s.Even && last%2 != 0 {
		return fmt.Sprintf("%s takes %s only where the last axis is even, not %d", r.Label, c.Format, last)
	}
	if r.Target == spec.Portable && d.DType == dtype.BFloat16 && !slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return !l.Cast }) {
		return "it is only cast, and what casts bfloat16 need not decode to it: name a target"
	}
	if r.NoScan && x.Scanned(d.Value) {
		return fmt.Sprintf("%s refuses a Scan that reads what is decoded outside of it", r.Label)
	}
	if u, ok := d.otherAxis(); ok && r.OneAxis {
		return fmt.Sprintf("%s goes wrong where a reader sums over another axis: %s", r.Label, u)
	}
	k := c.Operand.View[c.Operand.Axis]
	if s.EvenSum && k%2 != 0 {
		return fmt.Sprintf("%s computes %s wrongly where the axis summed over is odd, as %d is", r.Label, c.Format, k)
	}
	if len(c.Operand.View) == 1 && !r.Vectors && c.Block != spec.PerChannel && !r.Tables(c.Format) {
		if !s.Blocks.PerChannel {
			return fmt.Sprintf("%s cuts no weight of one axis into blocks", r.Label)
		}
		d.remark(fmt.Sprintf("one scale, not block %d: %s cuts no weight of one axis into blocks", c.Block, r.Label))
		c.Block = spec.PerChannel
	}
	block, ok := s.Blocks.Nearest(c.Block, k)
	if !ok {
		return fmt.Sprintf("%s takes %s in %s, and none divides %d", r.Label, c.Format, s.Blocks, k)
	}
	if block != c.Block {
		d.remark(fmt.Sprintf("%s, not block %d: %s takes %s", spec.BlockName(block), c.Block, r.Label, s.Blocks))
		c.Block = block
	}
	return ""
}

// unfused says why ONNX Runtime would decode an integer weight behind a
// DequantizeLinear at every run, or wrongly. It is "" where it fuses that with the
// weight's reader, and for other targets.
func (d *Decision) unfused(x *graph.Graph) string {
	c := &d.Choice
	if !c.Target.NBits || !c.Format.Scaled() {
		return ""
	}
	if len(d.Value.Uses) == 0 {
		return "ONNX Runtime does not fuse its DequantizeLinear: a function returns it"
	}
	reader := d.Value.Uses[0]
	op, columns := reader.Node.GetOpType(), d.Shape[len(d.Shape)-1]
	why := ""
	switch {
	case len(d.Value.Uses) > 1:
		why = "it has several readers"
	case reader.Node != d.Reach.Leaves[0].Node:
		why = op + " lies between"
	case x.Home[reader.Node].Values[d.Value.Name] != d.Value:
		why = "it is read in a subgraph"
	case op != "MatMul" && op != "Gemm" || reader.Input != 1:
		why = "it is read by " + reader.String()
	case len(d.Shape) != 2:
		why = fmt.Sprintf("it has %d axes", len(d.Shape))
	case c.Operand.Axis != 0:
		why = fmt.Sprintf("its scales lie along axis 1 of %s", reader)
	case c.Format.Bits() == 2 && columns%4 != 0:
		return fmt.Sprintf("ONNX Runtime computes it wrongly behind DequantizeLinear: %d columns are no multiple of 4", columns)
	case c.Block != spec.PerChannel && !slices.Contains(target.FusedBlocks, c.Block):
		why = fmt.Sprintf("its blocks are of %d", c.Block)
	default:
		return ""
	}
	return "ONNX Runtime does not fuse its DequantizeLinear: " + why
}

// otherAxis finds a reader that does not sum over the axis along which blocks
// run.
func (d *Decision) otherAxis() (reader graph.Use, ok bool) {
	for _, l := range d.Reach.Leaves {
		o, weight, why := l.Operand(d.Shape)
		if weight && (why != "" || o.Axis != d.Choice.Operand.Axis || !slices.Equal(o.View, d.Choice.Operand.View)) {
			return l.Use, true
		}
	}
	return graph.Use{}, false
}
