package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/spec"
)

// fit adapts the choice to its target and notes the changes. obstacle says why the weight stays in
// float, or "".
func (d *Decision) fit(c Choice, x *graph.Graph, opts Options) (_ Choice, obstacle string) {
	s, ok := c.Target.Support(c.Format)
	if !ok && opts.Static != nil && c.Format == spec.Int4 && slices.Contains(c.Target.Static.Formats, spec.Int4) {
		s, ok = target.Support{Blocks: c.Target.Static.Int4}, true // decoded beside floats
	}
	if !ok {
		return c, fmt.Sprintf("%s does not take %s", c.Target.Label, c.Format)
	}
	if why := d.refused(c, x, s, opts); why != "" {
		return c, why
	}
	return d.fitBlock(c, s, opts.Asked.Block && c.Block == opts.Block)
}

// refused returns why the target cannot use the weight in its format, either with any block size or
// with the block size that a precision_info asks for. It returns "" if the target can. Users see
// the first case that applies.
func (d *Decision) refused(c Choice, x *graph.Graph, s target.Support, opts Options) string {
	r := c.Target
	last, k := c.Operand.View[len(c.Operand.View)-1], c.Operand.View[c.Operand.Axis]
	other, hasOther := d.otherAxis(c)
	switch {
	case d.Override.Block != nil && !s.Blocks.Possible(c.Block) && (opts.Static == nil || !s.Blocks.Only):
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
		return fmt.Sprintf("%s computes wrongly if a reader's reduction axis is not the axis of the blocks: %s", r.Label, other)
	case k%2 != 0 && slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return slices.Contains(s.EvenSum, l.Node.GetOpType()) }):
		return fmt.Sprintf("%s computes %s wrongly in products that sum over an odd number of elements: %d", r.Label, c.Format, k)
	}
	return ""
}

// onlyCast reports whether all readers read the tensor through a Cast. A runtime that can Cast from
// bfloat16 may still have no DequantizeLinear that returns it.
func (d *Decision) onlyCast() bool {
	return !slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return !l.Cast })
}

// fitBlock changes the block size to the nearest one that the target supports. If there is none,
// obstacle says why; otherwise it is "". asked: the caller has set the block size.
func (d *Decision) fitBlock(c Choice, s target.Support, asked bool) (_ Choice, obstacle string) {
	r := c.Target
	if len(c.Operand.View) == 1 && !r.Vectors && c.Block != spec.PerChannel && !r.Tables(c.Format) {
		why := fmt.Sprintf("%s takes no blocks in a weight with one axis", r.Label)
		if !s.Blocks.PerChannel {
			return c, why
		}
		d.remark(fmt.Sprintf("one scale, not block %d: %s", c.Block, why))
		d.miss(asked, Unmet{Setting: "block", Asked: strconv.Itoa(c.Block), Got: spec.BlockName(spec.PerChannel), Why: why})
		c.Block = spec.PerChannel
	}
	k := c.Operand.View[c.Operand.Axis]
	block, ok := s.Blocks.Nearest(c.Block, k)
	if !ok {
		return c, fmt.Sprintf("%s takes %s in %s, and no such block divides %d", r.Label, c.Format, s.Blocks, k)
	}
	if block != c.Block {
		d.remark(fmt.Sprintf("%s, not block %d: %s takes %s", spec.BlockName(block), c.Block, r.Label, s.Blocks))
		d.miss(asked, Unmet{Setting: "block", Asked: strconv.Itoa(c.Block), Got: spec.BlockName(block), Why: fmt.Sprintf("%s takes %s", r.Label, s.Blocks)})
		c.Block = block
	}
	return c, ""
}

// unfused returns why ONNX Runtime would decode an integer weight at every run, or compute wrongly,
// behind a DequantizeLinear. It returns "" if neither holds, and for other targets.
func (d *Decision) unfused(c Choice, x *graph.Graph, s *graph.Shapes) string {
	if !c.Target.NBits || !c.Format.Scaled() {
		return ""
	}
	decoded := d.decoded(c, x, s)
	if c.Mins {
		return "ONNX Runtime does not fuse a DequantizeLinear from whose result mins are subtracted"
	}
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
func (d *Decision) fusedWithZeros(c Choice, x *graph.Graph, s *graph.Shapes) bool {
	w := d.decoded(c, x, s)
	if w.Unfused() == "" || w.Zeros || !c.Target.NBits {
		return false
	}
	w.Zeros = true
	return w.Unfused() == "" && w.Doubtful() == ""
}

// Decoded describes the weight behind a DequantizeLinear, as ONNX Runtime sees it.
func (d *Decision) Decoded(x *graph.Graph, s *graph.Shapes) target.Decoded {
	return d.decoded(*d.Choice, x, s)
}

func (d *Decision) decoded(c Choice, x *graph.Graph, s *graph.Shapes) target.Decoded {
	w := target.Decoded{Format: c.Format, DType: d.DType, Shape: d.Shape, Axis: c.Operand.Axis, Block: c.Block, Zeros: c.ZeroPoint, Opset: x.Opset, Nested: x.Nested(d.Value)}
	w.Product, w.Other = reach.ProductOf(x, s, d.Value, d.DType)
	if w.Other == "" && !slices.Equal(c.Operand.View, d.Shape) {
		w.Other = "its blocks run along several axes"
	}
	return w
}

// SlowBlock reports whether the block size is the only reason why ONNX Runtime decodes the weight
// at every run.
func (d *Decision) SlowBlock(x *graph.Graph, s *graph.Shapes, style spec.Style) bool {
	c := *d.Choice
	if !c.Target.NBits || c.Folded || !c.Format.Scaled() || c.Style != spec.DQ || c.Block <= 1 || slices.Contains(target.FusedBlocks, c.Block) {
		return false
	}
	c.Block = target.FusedBlocks[0]
	if decoded := d.decoded(c, x, s); decoded.Unfused() == "" && !c.Target.Direct {
		return true
	}
	_, why := FindNBits(x, d.tensor(), c)
	return why == "" && style == ""
}

// direct reports whether operators that read codes are better for the target than a
// DequantizeLinear. It notes why, unless they always are.
func (d *Decision) direct(c Choice, x *graph.Graph, s *graph.Shapes) bool {
	if c.Target.Direct {
		return c.Format.Scaled()
	}
	why := d.notDirect(c, x, s)
	if why != "" {
		d.remark(why)
	}
	return why != ""
}

// notDirect returns why ONNX Runtime does not fuse the DequantizeLinear of a weight, or cannot load it; or "".
func (d *Decision) notDirect(c Choice, x *graph.Graph, s *graph.Shapes) string {
	why := d.unfused(c, x, s)
	if need := c.Format.Traits().Codes.Opset(); why == "" && c.Target.NBits && c.Format.Scaled() && c.Format.Bits() == 2 && need > x.Opset {
		why = fmt.Sprintf("a DequantizeLinear of %s needs opset %d", c.Format, need)
	}
	if without := undecoded(c, x); c.Format.Scaled() && without != "" {
		why = without
	}
	return why
}

// undecoded says that the target has no kernel for the DequantizeLinear of the model's opset, which is raised to
// the first with one; "" if it has a kernel.
func undecoded(c Choice, x *graph.Graph) string {
	const first = 10
	if c.Target.Runs("DequantizeLinear", max(x.Opset, first)) {
		return ""
	}
	return fmt.Sprintf("%s has no kernel for DequantizeLinear at opset %d", c.Target.Name, x.Opset)
}

// otherAxis returns a reader whose reduction axis is not the axis of the blocks.
func (d *Decision) otherAxis(c Choice) (reader graph.Use, ok bool) {
	for _, l := range d.Reach.Leaves {
		o, weight, why := l.Operand(d.Shape)
		if weight && (why != "" || o.Axis != c.Operand.Axis || !slices.Equal(o.View, c.Operand.View)) {
			return l.Use, true
		}
	}
	return graph.Use{}, false
}
