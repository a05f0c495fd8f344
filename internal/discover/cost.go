package discover

import (
	"cmp"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/spec"
)

const decodedOnce = "ONNX Runtime decodes it once, when it loads the model"

// cheapest settles the form of a weight for a target that folds constants: one that takes no more time
// than the float weight. These forms are tried in turn: codes that MatMulNBits or GatherBlockQuantized
// reads, if the measured costs allow it; operators that the target folds when it loads the model. Formats
// that have neither are written as asked for. With Options.Smallest, codes stay codes in memory, at any
// cost. why says that the target cannot decode the weight.
func (d *Decision) cheapest(c Choice, x *graph.Graph, s *graph.Shapes, opts Options, forceDQ string) (_ Choice, why string) {
	if !opts.Smallest {
		if c, direct := d.fused(c, x, s, forceDQ); direct {
			return c, ""
		}
		if c.foldable() && !c.Target.Tables(c.Format) {
			c.Folded = true
			d.remark(decodedOnce)
			return c, ""
		}
	}
	c = d.anyForm(c, x, s, opts, forceDQ)
	if c.Style == spec.NBits {
		return c, ""
	}
	if c.Style == spec.DQ && !c.foldable() && !d.direct(c, x, s) {
		d.remark("ONNX Runtime decodes it at every run")
	}
	return c, undecoded(c, x)
}

// once has Cast and Mul decode a weight, unless ONNX Runtime fuses its DequantizeLinear with products of one row that take no more time
// than with floats. With more rows, that depends on the processor: without VNNI, they take longer.
func (d *Decision) once(c Choice, x *graph.Graph, s *graph.Shapes) Choice {
	if !c.foldable() || c.Target.Tables(c.Format) {
		return c
	}
	moreRows := slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool { return rowsOf(l, x, s) != 1 })
	if d.decoded(c, x, s).Unfused() != "" || moreRows || !d.fastFused(c, x, s) {
		c.Folded = true
		d.remark(decodedOnce)
	}
	return c
}

// fastFused reports whether each product with which ONNX Runtime fuses the DequantizeLinear of the weight takes no more time than one
// with floats.
func (d *Decision) fastFused(c Choice, x *graph.Graph, s *graph.Shapes) bool {
	c.AccuracyLevel = spec.AccuracyInt8 // as ONNX Runtime fuses
	return d.fast(c, NBits{Product: true, Block: int64(fusedBlock(c))}, x, s)
}

// AtEveryRun reports whether ONNX Runtime decodes the weight at every run, which has a DequantizeLinear if
// dequantized. Nothing is known of other runtimes. Experts, which have a warning of their own, do not count.
func (d *Decision) AtEveryRun(dequantized bool, x *graph.Graph, s *graph.Shapes) bool {
	c := *d.Choice
	switch {
	case !c.Target.NBits && c.Target.Target != spec.Portable, d.OfExperts():
		return false
	case c.Style == spec.NBits:
		int8 := c.AccuracyLevel.Attribute() == int64(spec.AccuracyInt8)
		return c.NBits.Product && !c.NBits.Bnb4 && (c.NBits.FloatZeros || c.Format.Bits() != 4 && !int8)
	case c.Style == spec.DQ, c.Style == spec.QDQ:
		return dequantized && d.decoded(c, x, s).Unfused() != ""
	}
	return false
}

// foldable reports whether ONNX Runtime can fold the operators that decode a weight. ggml's encodings
// need a DequantizeLinear, which it does not fold.
func (c Choice) foldable() bool {
	e := c.Format.Encoding()
	return e == nil || e.Form.Values != nil
}

// fused gives a weight a form in which operators of ONNX Runtime read its codes, if that is as fast as
// float, or for 2 bits below the opset that has their type. ok is false if there is none.
func (d *Decision) fused(c Choice, x *graph.Graph, s *graph.Shapes, forceDQ string) (_ Choice, ok bool) {
	if !c.Format.Scaled() {
		return c, false
	}
	n, lacking := d.findNBits(x, s, c)
	why := d.notDirect(c, x, s)
	zeros := why != "" && lacking != "" && d.fusedWithZeros(c, x, s)
	switch {
	case why == "" || zeros:
		if !d.fastFused(c, x, s) {
			return c, false
		}
		if c.StoredZeros = zeros; zeros {
			d.remark("zero points of 0 are stored: with them ONNX Runtime fuses its DequantizeLinear")
		}
		return c, true
	case cmp.Or(forceDQ, lacking) != "":
		return c, false
	case c.Format.Bits() == 2 && c.Format.Traits().Codes.Opset() > x.Opset: // few models can be raised to it
	case !d.fast(c, n, x, s):
		return c, false
	}
	d.remark(why)
	c.Style, c.NBits = spec.NBits, n
	return c, true
}

// fusedBlock is the block size with which ONNX Runtime fuses a DequantizeLinear.
func fusedBlock(c Choice) int {
	if c.Block == spec.PerChannel {
		return 32
	}
	return c.Block
}

// fewRows is the size in bytes of a float table from which on a GatherBlockQuantized is better than a
// table that is decoded when the model is loaded: the table would take the memory, and the few rows that a run
// reads little of its time.
const fewRows = 64 << 20

// fast reports whether each product that reads the codes of a weight takes no more time than one with
// floats.
func (d *Decision) fast(c Choice, n NBits, x *graph.Graph, s *graph.Shapes) bool {
	switch {
	case n.Experts:
		return true // QMoE computes with the chosen experts alone
	case !n.Product:
		return d.Bytes >= fewRows
	}
	k := c.Operand.View[c.Operand.Axis]
	size, _ := dtype.Elements(c.Operand.View)
	return !slices.ContainsFunc(d.Reach.Leaves, func(l reach.Leaf) bool {
		p := target.Nibbles{
			Bits: c.Format.Bits(), Block: int(n.Block), Level: int(c.AccuracyLevel.Attribute()),
			Zeros: c.ZeroPoint, K: k, N: size / max(k, 1), Rows: rowsOf(l, x, s),
		}
		return l.Node.GetOpType() != "Gather" && !p.Fast()
	})
}

// rowsOf returns the number of rows that a product multiplies by a matrix; 0 if it is not known.
func rowsOf(l reach.Leaf, x *graph.Graph, s *graph.Shapes) int64 {
	dims := s.Of(x.Source(l.Node, 0))
	if len(dims) == 0 {
		return 0
	}
	if graph.IntAttribute(l.Node, "transA") != 0 {
		dims = dims[1:]
	} else {
		dims = dims[:len(dims)-1]
	}
	rows := int64(1)
	for _, dim := range dims {
		if dim.Length <= 0 || rows > 1<<31 {
			return 0
		}
		rows *= dim.Length
	}
	return rows
}
