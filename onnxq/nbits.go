package onnxq

import (
	"fmt"
	"math/bits"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/onnxq/spec"
)

// nbits is the form in which operators of ONNX Runtime read codes themselves.
//
// MatMulNBits multiplies by the transpose of a matrix of N rows of K elements.
// Its codes are uint8 [N, blocks, block·bits/8]: a row is cut into blocks, the
// last one padded with zeros, and packed with the first code in the lowest bits.
// Scales are [N, blocks], of the type of the other factor; zero points are
// uint8, packed in the same way, each row padded to whole bytes. Without them
// the zero point is 2^(bits-1).
//
// GatherBlockQuantized reads rows of the same codes, scales and zero points, but
// without padding of the last block: uint8 [N, K·bits/8].
//
// Both are described with ONNX Runtime's contrib operators.
type nbits struct {
	product bool  // some MatMul or Gemm becomes a MatMulNBits
	gather  bool  // some Gather becomes a GatherBlockQuantized
	block   int64 // their block_size
}

// Limits of block sizes. Both operators want powers of two.
const (
	leastNBitsBlock    = 16
	greatestNBitsBlock = 256 // of MatMulNBits
)

// nbitsForm finds the form of a weight with its operators, or says why it has
// none.
func (d *decision) nbitsForm(x *graph.Graph) (f nbits, why string) {
	c := &d.choice
	switch {
	case !c.format.Scaled():
		return f, fmt.Sprintf("they have no %s", c.format)
	case d.dtype != dtype.Float32 && d.dtype != dtype.Float16:
		return f, fmt.Sprintf("they do not compute in %s", d.dtype)
	case d.value.Body != nil:
		return f, "inside of a function"
	}
	k := c.View[c.Axis]
	for _, l := range d.reach.Leaves {
		if why := nbitsObstacle(l, d.shape, c.Operand, x); why != "" {
			return f, why
		}
		if l.Node.GetOpType() == "Gather" {
			f.gather = true
		} else {
			f.product = true
		}
	}
	if f.product && len(c.View) != 2 {
		return f, "MatMulNBits takes matrices"
	}
	f.block = int64(c.block)
	if c.block == spec.PerChannel || f.block >= k { // a single block may be padded to any size
		f.block = max(leastNBitsBlock, int64(1)<<bits.Len64(uint64(k-1)))
	}
	per := int64(8 / c.format.Bits())
	switch {
	case f.block < leastNBitsBlock || f.block&(f.block-1) != 0:
		return f, fmt.Sprintf("they take blocks of powers of two from %d on", leastNBitsBlock)
	case f.product && f.block > greatestNBitsBlock:
		return f, fmt.Sprintf("MatMulNBits takes blocks up to %d", greatestNBitsBlock)
	case f.gather && c.Axis != len(d.shape)-1:
		return f, "GatherBlockQuantized takes blocks along the last axis"
	case f.gather && k%per != 0:
		return f, fmt.Sprintf("GatherBlockQuantized takes rows of whole bytes, not of %d codes", k)
	case f.gather && f.product && k%f.block != 0:
		return f, fmt.Sprintf("rows of %d are no multiple of the block, so MatMulNBits pads them and GatherBlockQuantized does not", k)
	}
	return f, ""
}

// nbits tells why the operator cannot read codes whose blocks run along an axis
// of a tensor of that shape.
func nbitsObstacle(l reach.Leaf, shape []int64, along reach.Operand, x *graph.Graph) (why string) {
	o, ok, lost := l.Operand(shape)
	op := l.Node.GetOpType()
	switch {
	case !ok || op != "MatMul" && op != "Gemm" && op != "Gather":
		return fmt.Sprintf("%s has no such form", op)
	case !graph.HasInput(l.Node, 0) || !graph.HasInput(l.Node, 1):
		return fmt.Sprintf("%s has an input too few", graph.Describe(l.Node))
	case l.Cast:
		return "a Cast lies between"
	case l.Call:
		return "it goes through a function"
	case lost != "":
		return lost
	case o.Axis != along.Axis || !slices.Equal(o.View, along.View):
		return fmt.Sprintf("%s sums over another axis", l)
	case op == "Gather" && (!l.Layout.Is(shape) || graph.IntAttribute(l.Node, "axis") != 0):
		return "GatherBlockQuantized takes from the first axis"
	case op == "Gather":
		return ""
	case l.Input != 1 || len(l.Layout.Axes) != 2 || !l.Layout.Straight():
		return "MatMulNBits takes a matrix on the right"
	case op == "Gemm" && x.Opset < 7:
		return "Gemm is that of an opset below 7"
	case op == "Gemm" && (graph.IntAttribute(l.Node, "transA") != 0 || graph.FloatAttributeOr(l.Node, "alpha", 1) != 1 || graph.HasInput(l.Node, 2) && graph.FloatAttributeOr(l.Node, "beta", 1) != 1):
		return "Gemm transposes or scales"
	}
	return ""
}

// String names the operators, for the plan.
func (f nbits) String() string {
	switch {
	case f.product && f.gather:
		return "MatMulNBits and GatherBlockQuantized"
	case f.gather:
		return "GatherBlockQuantized"
	}
	return "MatMulNBits"
}

// buildNBits adds the tensors that the operators read.
func (w *weight) buildNBits(b *builder) {
	f, rows, size := w.d.choice.nbits, w.outer*w.inner, int64(w.bits())
	uint8s := dtype.DType(onnxpb.TensorProto_UINT8)
	codes, blocks := []int64{rows, w.blocks, f.block * size / 8}, []int64{rows, w.blocks}
	if !f.product {
		lead := w.d.shape[:len(w.d.shape)-1]
		codes, blocks = append(lead[:len(lead):len(lead)], w.k*size/8), append(lead[:len(lead):len(lead)], w.blocks)
	}
	w.codes = b.tensor(w.d.value.Name+suffixOf(w.codeType()), uint8s, codes)
	w.scale = b.tensor(w.d.value.Name+"_scale", w.scaleType(), blocks)
	if w.codec != nil && w.codec.HasZeroPoints() {
		packed := append(blocks[:len(blocks)-1:len(blocks)-1], (w.blocks*size+7)/8)
		w.zero = b.tensor(w.d.value.Name+"_zp", uint8s, packed)
	}
}
