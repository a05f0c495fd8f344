package form

import (
	"encoding/binary"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// Mins are float32 numbers, one for each block, which are subtracted from a decoded weight. Where an operator decodes it
// internally, they are [N, blocks]:
//
//	x ── MatMulNBits(codes, scale) ─────────────────── Sub ── y
//	└─ Reshape [..., blocks, block] ── ReduceSum ── MatMul ─┘
//	                           min ── Transpose ─────┘
//
//	indices ── GatherBlockQuantized(codes, scale) ──────────── Sub ── y
//	└─ Gather(min) ── Gather(block of each element, axis -1) ──┘

// minShape is the shape of mins that are subtracted from the result of nodes.
func (w *Weight) minShape() []int64 {
	if w.Choice.Folded {
		return w.scaleShape()
	}
	shape := slices.Clone(w.view())
	shape[w.axis()] = w.Blocks
	return shape
}

// spreadMins repeats the mins for the elements of their blocks.
func (b *building) spreadMins() string {
	w, name := b.w, b.tensors.Mins.GetName()
	if w.Choice.Folded {
		return b.spread(name)
	}
	if w.Blocks == 1 {
		return name
	}
	return b.Value(name, "Gather", []string{name, b.blockIndex(w.K, w.Block)}, IntAttr("axis", int64(w.axis())))
}

// sumsKey identifies the sums of blocks of a factor.
type sumsKey struct {
	graph         *onnxpb.GraphProto
	factor        string
	blocks, block int64
}

// subtractMins subtracts the sums of blocks of x, times the mins, from a product of x, or the mins themselves from gathered rows.
func (c *Operators) subtractMins(w *Weight, mins string, n *onnxpb.NodeProto, x string, b *Builder) {
	made := c.copy.Node(n)
	behind := func(op string, inputs []string, attrs ...*onnxpb.AttributeProto) (output string) {
		output = b.Fresh(w.Name + "_" + op + "_Output")
		node := b.NewNode(w.Name, op, output, inputs, attrs...)
		c.copy.AddBehind(made, node)
		if op == "ReduceSum" {
			c.hide(node) // its axes are an input since opset 13
		}
		return output
	}
	if n.GetOpType() == "Gather" {
		rows := behind("Gather", []string{mins, n.Input[1]})
		if w.Blocks > 1 {
			rows = behind("Gather", []string{rows, b.blockIndex(w.K, w.Block)}, IntAttr("axis", -1))
		}
		c.appendOperator(w, n, b, "GatherBlockQuantized", "Sub", rows)
		return
	}
	key := sumsKey{c.copy.Original.Home(n).Graph, x, w.Blocks, w.Block}
	if c.sums == nil {
		c.sums = map[sumsKey]string{}
	}
	if c.sums[key] == "" {
		shape := make([]int64, w.Choice.NBits.Rank-1, w.Choice.NBits.Rank+1) // 0: as it is
		view := behind("Reshape", []string{x, b.Shape(w.Name+"_blocks", append(shape, w.Blocks, w.Block))})
		rank := w.Choice.NBits.Rank // not -1: ONNX Runtime then keeps the axis if there are no rows
		axis := b.Constant(fmt.Sprintf("axis_%d", rank), dtype.Int64, []int64{1}, binary.LittleEndian.AppendUint64(nil, uint64(rank)))
		c.sums[key] = behind("ReduceSum", []string{view, axis}, IntAttr("keepdims", 0))
	}
	turned := behind("Transpose", []string{mins})
	c.appendOperator(w, n, b, "MatMulNBits", "Sub", behind("MatMul", []string{c.sums[key], turned}))
}
