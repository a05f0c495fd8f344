package discover

import (
	"cmp"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/onnxq/spec"
)

// fit adapts the choice to its target and notes what it changes. It returns why the weight
// stays in float, or "".
func (d *Decision) fit(x *graph.Graph) (obstacle string) {
	s, ok := d.Choice.Target.Support(d.Choice.Format)
	if !ok {
		return fmt.Sprintf("%s does not take %s", d.Choice.Target.Label, d.Choice.Format)
	}
	if why := d.refused(x, s); why != "" {
		return why
	}
	return d.fitBlock(s)
}

// refused returns why the target cannot use the weight in its format, whatever the block
// size, or with the block size that a precision_info asks for. It is "" if it can. The first
// case that holds is the one that the user reads.
func (d *Decision) refused(x *graph.Graph, s target.Support) string {
	c, r := d.Choice, d.Choice.Target
	last, k := c.Operand.View[len(c.Operand.View)-1], c.Operand.View[c.Operand.Axis]
	other, hasOther := d.otherAxis()
	switch {
	case d.Override.Block != nil && !s.Blocks.Possible(c.Block):
		return fmt.Sprintf("%s takes %s in %s, not %s", r.Label, c.Format, s.Blocks, spec.BlockName(c.Block))
	case s.Product && d.Convolves():
		return fmt.Sprintf("%s does not take %s in convolutions", r.Label, c.Format)
	case s.Even && last%2 != 0:
		return fmt.Sprintf("%s takes %s only if the length of the last axis is even, not %d", r.Label, c.Format, last)
	case r.Target == spec.Portable && d.DType == dtype.BFloat16 && d.onlyCast():
		return "bfloat16 weight read only through Cast; choose --target"
	case r.NoScan && x.Scanned(d.Value):
		return fmt.Sprintf("%s refuses a Scan that reads a decoded weight from outside its body", r.Label)
	case hasOther && r.OneAxis:
		return fmt.Sprintf("%s computes wrongly if a reader sums over another axis than that of the blocks: %s", r.Label, other)
	case k%2 != 0 && slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return slices.Contains(s.EvenSum, l.Node.GetOpType()) }):
		return fmt.Sprintf("%s computes %s wrongly in products that sum over an odd number of elements: %d", r.Label, c.Format, k)
	}
	return ""
}

// onlyCast reports whether all readers get the tensor through a Cast. A runtime that can Cast
// from bfloat16 may still have no DequantizeLinear that returns it.
func (d *Decision) onlyCast() bool {
	return !slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return !l.Cast })
}

// fitBlock changes the block size to the nearest one that the target takes. It returns why
// there is none, or "".
func (d *Decision) fitBlock(s target.Support) (obstacle string) {
	c, r := d.Choice, d.Choice.Target
	if len(c.Operand.View) == 1 && !r.Vectors && c.Block != spec.PerChannel && !r.Tables(c.Format) {
		why := fmt.Sprintf("%s takes no blocks in a weight with one axis", r.Label)
		if !s.Blocks.PerChannel {
			return why
		}
		d.remark(fmt.Sprintf("one scale, not block %d: %s", c.Block, why))
		c.Block = spec.PerChannel
	}
	k := c.Operand.View[c.Operand.Axis]
	block, ok := s.Blocks.Nearest(c.Block, k)
	if !ok {
		return fmt.Sprintf("%s takes %s in %s, and no such block divides %d", r.Label, c.Format, s.Blocks, k)
	}
	if block != c.Block {
		d.remark(fmt.Sprintf("%s, not block %d: %s takes %s", spec.BlockName(block), c.Block, r.Label, s.Blocks))
		c.Block = block
	}
	return ""
}

// unfused returns why ONNX Runtime would decode an integer weight at every run, or would
// compute wrongly, behind a DequantizeLinear. It is "" if neither, and for other targets.
func (d *Decision) unfused(x *graph.Graph, s *graph.Shapes) string {
	c := d.Choice
	if !c.Target.NBits || !c.Format.Scaled() {
		return ""
	}
	decoded := d.Decoded(x, s)
	if why := cmp.Or(decoded.Unfused(), decoded.Doubtful()); why != "" {
		return "ONNX Runtime does not fuse its DequantizeLinear: " + why
	}
	switch {
	case decoded.Zeroed():
		return "ONNX Runtime computes zeros behind DequantizeLinear: float16, in a body of If, Loop or Scan"
	case decoded.Spoilt():
		return fmt.Sprintf("ONNX Runtime computes it wrongly behind DequantizeLinear: 2 bits, and its %d columns are not a multiple of 4", d.Shape[1])
	}
	return ""
}

// fusedWithZeros reports whether ONNX Runtime fuses the DequantizeLinear of the weight only if it has zero points.
func (d *Decision) fusedWithZeros(x *graph.Graph, s *graph.Shapes) bool {
	w := d.Decoded(x, s)
	if w.Unfused() == "" || w.Zeros || !d.Choice.Target.NBits {
		return false
	}
	w.Zeros = true
	return w.Unfused() == "" && w.Doubtful() == ""
}

// Decoded describes the weight as ONNX Runtime gets it behind a DequantizeLinear.
func (d *Decision) Decoded(x *graph.Graph, s *graph.Shapes) target.Decoded {
	c := d.Choice
	w := target.Decoded{Format: c.Format, DType: d.DType, Shape: d.Shape, Axis: c.Operand.Axis, Block: c.Block, Zeros: c.ZeroPoint, Opset: x.Opset, Nested: x.Nested(d.Value)}
	w.Product, w.Other = reach.ProductOf(x, s, d.Value, d.DType)
	if w.Other == "" && !slices.Equal(c.Operand.View, d.Shape) {
		w.Other = "its blocks run along several axes"
	}
	return w
}

// SlowBlock reports whether ONNX Runtime decodes the weight at every run only because of its block
// size.
func (d *Decision) SlowBlock(x *graph.Graph, s *graph.Shapes, style spec.Style) bool {
	c := *d.Choice
	if !c.Target.NBits || !c.Format.Scaled() || c.Style != spec.DQ || c.Block <= 1 || slices.Contains(target.FusedBlocks, c.Block) {
		return false
	}
	c.Block = target.FusedBlocks[0]
	decoded := d.Decoded(x, s)
	decoded.Block = c.Block
	if decoded.Unfused() == "" && !c.Target.Direct {
		return true
	}
	_, why := FindNBits(x, d.tensor(), c)
	return why == "" && style == ""
}

// direct reports whether operators that read codes suit the target better than a
// DequantizeLinear. It notes why, unless they always do.
func (d *Decision) direct(x *graph.Graph, s *graph.Shapes) bool {
	c := d.Choice
	if c.Target.Direct {
		return c.Format.Scaled()
	}
	why := d.unfused(x, s)
	if need := c.Format.Traits().Codes.Opset(); why == "" && c.Target.NBits && c.Format.Scaled() && c.Format.Bits() == 2 && need > x.Opset {
		why = fmt.Sprintf("a DequantizeLinear of %s needs opset %d", c.Format, need)
	}
	if why != "" {
		d.remark(why)
	}
	return why != ""
}

// otherAxis finds a reader that sums over another axis than that of the blocks.
func (d *Decision) otherAxis() (reader graph.Use, ok bool) {
	for _, l := range d.Reach.Leaves {
		o, weight, why := l.Operand(d.Shape)
		if weight && (why != "" || o.Axis != d.Choice.Operand.Axis || !slices.Equal(o.View, d.Choice.Operand.View)) {
			return l.Use, true
		}
	}
	return graph.Use{}, false
}
