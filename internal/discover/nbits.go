package discover

import (
	"fmt"
	"math/bits"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/reach"
	"onnxquant/internal/target"
	"onnxquant/spec"
)

// NBits is the form of a weight in which ONNX Runtime's own operators read its codes.
//
// MatMulNBits multiplies by the transpose of a matrix [N, K].
// Its codes are uint8 [N, blocks, block·bits/8]: a row is cut into blocks, the
// last one padded with zeros, and packed with the first code in the lowest bits.
// Scales are [N, blocks], of the type of the other factor; zero points are
// uint8, packed in the same way, each row padded to whole bytes, or like scales
// and of their type. Without them the zero point is 2^(bits-1).
//
// GatherBlockQuantized reads rows of the same codes, scales and zero points, but
// without padding of the last block: uint8 [N, K·bits/8].
//
// Codes of float8 and float4 are tensors of that type, for GatherBlockQuantized alone.
//
// MatMulBnb4 multiplies by the transpose of a matrix [N, K], too. Its codes are positions in the
// table NF4 or FP4, uint8 [N·K/2] with the first of two codes in the high bits. Blocks run over
// the flat matrix; here they divide its rows.
//
// QMoE multiplies by the transposes of the matrices [E, N, K] of experts. Its codes are those of
// GatherBlockQuantized, with zero points likewise. With one scale per channel, scales are [E, N], and
// zero points are packed along N.
//
// All are specified in docs/ContribOperators.md of ONNX Runtime.
type NBits struct {
	Bnb4    bool  // a MatMul or Gemm becomes a MatMulBnb4
	Product bool  // a MatMul or Gemm becomes a MatMulNBits, or with Bnb4 a MatMulBnb4
	Gather  bool  // a Gather becomes a GatherBlockQuantized
	Experts bool  // a MoE becomes a QMoE
	Block   int64 // block_size of the operators; 0: QMoE has one scale per channel

	FloatZeros bool // zero points have the type of the scales
	Rank       int  // axes of the other factors, for mins
}

// Limits of block_size, which must be a power of two in both operators.
const (
	minNBitsBlock = 16
	MaxNBitsBlock = 256 // of MatMulNBits
)

// NBitsBlock reports whether the operators support a block size.
func NBitsBlock(n int64) bool { return n >= minNBitsBlock && n&(n-1) == 0 }

// Tensor is a float tensor and its readers.
type Tensor struct {
	Value *graph.Value
	DType dtype.DType
	Shape []int64
	Reach reach.Reach
}

// FindNBits returns the form in which the readers of a weight can read its codes, or why they
// cannot.
func FindNBits(x *graph.Graph, w Tensor, c Choice) (f NBits, why string) {
	switch {
	case !c.Format.Scaled() && c.Format.Traits().Family != spec.Lookup && !c.Format.FloatCodes():
		return f, fmt.Sprintf("they do not support %s", c.Format)
	case w.DType != dtype.Float32 && w.DType != dtype.Float16:
		return f, fmt.Sprintf("they do not compute in %s", w.DType)
	case w.Value.Body != nil:
		return f, "the weight is in a function"
	}
	k := c.Operand.View[c.Operand.Axis]
	for _, l := range w.Reach.Leaves {
		if why := nbitsObstacle(l, w.Shape, c.Operand, x); why != "" {
			return f, why
		}
		switch {
		case readsExperts(l):
			f.Experts = true
		case l.Node.GetOpType() == "Gather":
			f.Gather = true
		default:
			f.Product = true
		}
	}
	if slices.ContainsFunc(w.Reach.Unread, func(l reach.Leaf) bool { return l.Call || l.Held }) {
		return f, "it goes through a function, a Loop, a Scan or an If"
	}
	if c.Format.FloatCodes() {
		switch {
		case f.Experts || f.Product:
			return f, fmt.Sprintf("GatherBlockQuantized alone supports %s: add --ops Gather, or leave out --style", c.Format)
		case c.Target.Target != spec.Portable && c.Target.Target != spec.ORT:
			return f, fmt.Sprintf("no kernel of %s is known that reads %s", c.Target.Label, c.Format)
		case c.Format.Traits().Family != spec.Float8 && w.DType != dtype.Float32:
			return f, fmt.Sprintf("the scales of %s are decoded to float32", c.Format)
		}
	}
	if f.Experts && c.Mins {
		return f, "QMoE has no mins"
	}
	if f.Experts {
		return findExperts(w, c)
	}
	if f.Product && len(c.Operand.View) != 2 {
		return f, "MatMulNBits takes matrices"
	}
	f.Block = int64(c.Block)
	if c.Block == spec.PerChannel || f.Block >= k { // a single block may be padded to any size
		f.Block = max(minNBitsBlock, int64(1)<<bits.Len64(uint64(k-1)))
	}
	per := int64(8 / c.Format.Bits())
	if f.Bnb4 = c.Format.Traits().Family == spec.Lookup; f.Bnb4 {
		return f, f.bnb4Obstacle(int64(c.Block), k, c.Target)
	}
	switch {
	case !NBitsBlock(f.Block):
		return f, fmt.Sprintf("they take block sizes that are powers of two, at least %d", minNBitsBlock)
	case f.Product && !c.Target.MatMulNBits.Takes(c.Format.Bits()):
		return f, fmt.Sprintf("the MatMulNBits of %s takes no codes of %d bits", c.Target.Label, c.Format.Bits())
	case f.Product && f.Block > MaxNBitsBlock:
		return f, fmt.Sprintf("MatMulNBits takes block sizes up to %d", MaxNBitsBlock)
	case f.Gather && c.Operand.Axis != len(w.Shape)-1 && !f.Product: // the codes of a product are turned
		return f, "GatherBlockQuantized takes blocks along the last axis"
	case f.Gather && k%per != 0:
		return f, fmt.Sprintf("GatherBlockQuantized takes only rows that fill whole bytes, and %d codes do not", k)
	case f.Gather && f.Product && k%f.Block != 0:
		return f, fmt.Sprintf("the block size does not divide the row length %d, so MatMulNBits would pad rows and GatherBlockQuantized would not", k)
	}
	// ONNX Runtime has no kernel for float zero points beside codes of 8 bits.
	f.FloatZeros = c.Algorithm.Traits().FloatZeros && f.Product && !f.Gather && c.Format.Bits() < 8 && !c.Target.MatMulNBits.CodeZeros
	return f, ""
}

// bnb4Obstacle returns why MatMulBnb4 cannot read codes in blocks of rows of k, or "".
func (f NBits) bnb4Obstacle(block, k int64, t *target.Engine) (why string) {
	switch {
	case t.NoBnb4:
		return fmt.Sprintf("target %s has no MatMulBnb4", t.Target)
	case f.Gather:
		return "MatMulBnb4 is no Gather"
	case !NBitsBlock(block) || block > MaxNBitsBlock:
		return fmt.Sprintf("MatMulBnb4 takes block sizes that are powers of two from %d to %d", minNBitsBlock, MaxNBitsBlock)
	case k%block != 0:
		return fmt.Sprintf("the blocks of MatMulBnb4 would reach across columns: %d does not divide %d", block, k)
	}
	return ""
}

// nbitsObstacle returns why the operator of a leaf cannot read codes whose blocks run along
// the given axis of a tensor of the given shape, or "".
func nbitsObstacle(l reach.Leaf, shape []int64, along reach.Operand, x *graph.Graph) (why string) {
	o, ok, lost := l.Operand(shape)
	op := l.Node.GetOpType()
	switch {
	case !ok || op != "MatMul" && op != "Gemm" && op != "Gather" && !readsExperts(l):
		return fmt.Sprintf("they do not replace %s", op)
	case !graph.HasInput(l.Node, 0) || !graph.HasInput(l.Node, 1):
		return fmt.Sprintf("%s lacks an input", graph.Describe(l.Node))
	case readsExperts(l):
	case graph.HasInput(l.Node, 2) && op != "Gemm" || graph.HasInput(l.Node, 3):
		return fmt.Sprintf("%s has too many inputs", graph.Describe(l.Node))
	case l.Cast:
		return "a Cast lies between the weight and its reader"
	case l.Call:
		return "it is passed to or from a function"
	case l.Held:
		return "it is carried by a Loop or Scan, or handed on by an If"
	case lost != "":
		return lost
	case o.Axis != along.Axis || !slices.Equal(o.View, along.View):
		return fmt.Sprintf("%s sums over another axis", l)
	case op == "Gather" && (!l.Layout.Is(shape) && !(along.Axis == 0 && l.Layout.Turns(shape)) || graph.IntAttribute(l.Node, "axis") != 0):
		return "GatherBlockQuantized gathers along the first axis only"
	case op == "Gather":
		return ""
	case readsExperts(l) && !l.Layout.Is(shape):
		return "QMoE takes experts as they are stored"
	case readsExperts(l):
		return ""
	case l.Input != 1 || len(l.Layout.Axes) != 2 || !l.Layout.Straight():
		return "MatMulNBits takes a matrix as the second factor only"
	case op == "Gemm" && x.Opset < 7:
		return "Gemm before opset 7 broadcasts differently"
	}
	return ""
}

// String names the operators.
func (f NBits) String() string {
	switch {
	case f.Bnb4:
		return "MatMulBnb4"
	case f.Experts:
		return "QMoE"
	case f.Product && f.Gather:
		return "MatMulNBits and GatherBlockQuantized"
	case f.Gather:
		return "GatherBlockQuantized"
	}
	return "MatMulNBits"
}
