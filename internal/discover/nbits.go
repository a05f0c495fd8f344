package discover

import (
	"fmt"
	"math/bits"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/onnxq/spec"
)

// NBits is the form in which operators of ONNX Runtime read codes themselves.
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
type NBits struct {
	Product bool  // some MatMul or Gemm becomes a MatMulNBits
	Gather  bool  // some Gather becomes a GatherBlockQuantized
	Block   int64 // their block_size
}

// Limits of block sizes. Both operators want powers of two.
const (
	leastNBitsBlock    = 16
	GreatestNBitsBlock = 256 // of MatMulNBits
)

// FindNBits finds the form in which the operators behind leaves read a weight of that
// type and shape, quantized as chosen, or says why there is none.
func FindNBits(x *graph.Graph, v *graph.Value, typ dtype.DType, shape []int64, r reach.Reach, c Choice) (f NBits, why string) {
	switch {
	case !c.Format.Scaled():
		return f, fmt.Sprintf("they have no %s", c.Format)
	case typ != dtype.Float32 && typ != dtype.Float16:
		return f, fmt.Sprintf("they do not compute in %s", typ)
	case v.Body != nil:
		return f, "inside of a function"
	}
	k := c.Operand.View[c.Operand.Axis]
	for _, l := range r.Leaves {
		if why := nbitsObstacle(l, shape, c.Operand, x); why != "" {
			return f, why
		}
		if l.Node.GetOpType() == "Gather" {
			f.Gather = true
		} else {
			f.Product = true
		}
	}
	if slices.ContainsFunc(r.Unread, func(l reach.Leaf) bool { return l.Call }) {
		return f, "it goes through a function"
	}
	if f.Product && len(c.Operand.View) != 2 {
		return f, "MatMulNBits takes matrices"
	}
	f.Block = int64(c.Block)
	if c.Block == spec.PerChannel || f.Block >= k { // a single block may be padded to any size
		f.Block = max(leastNBitsBlock, int64(1)<<bits.Len64(uint64(k-1)))
	}
	per := int64(8 / c.Format.Bits())
	switch {
	case f.Block < leastNBitsBlock || f.Block&(f.Block-1) != 0:
		return f, fmt.Sprintf("they take blocks of powers of two from %d on", leastNBitsBlock)
	case f.Product && f.Block > GreatestNBitsBlock:
		return f, fmt.Sprintf("MatMulNBits takes blocks up to %d", GreatestNBitsBlock)
	case f.Gather && c.Operand.Axis != len(shape)-1:
		return f, "GatherBlockQuantized takes blocks along the last axis"
	case f.Gather && k%per != 0:
		return f, fmt.Sprintf("GatherBlockQuantized takes rows of whole bytes, not of %d codes", k)
	case f.Gather && f.Product && k%f.Block != 0:
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
func (f NBits) String() string {
	switch {
	case f.Product && f.Gather:
		return "MatMulNBits and GatherBlockQuantized"
	case f.Gather:
		return "GatherBlockQuantized"
	}
	return "MatMulNBits"
}
