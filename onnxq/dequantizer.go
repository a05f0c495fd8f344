package onnxq

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// dequantizer is a DequantizeLinear of stored codes.
type dequantizer struct {
	made          *value
	codes, scales dtype.DType
	dims          []int64
	axis          int
	block         int64 // 0: none
	scaleCount    int64
	scalar        bool // the scale has no axes
	zero          bool
	owner         string // the operator that holds its graph
	outer         bool   // its codes are outside of that graph
	index         *graphIndex
}

// dequantizer returns what a node decodes, if it is a DequantizeLinear of stored
// codes that fits together.
func (m *Model) dequantizer(n *onnxpb.NodeProto) *dequantizer {
	x := m.index
	if n.GetOpType() != "DequantizeLinear" || !standardDomain(n.GetDomain()) {
		return nil
	}
	codes, scale, made := x.source(use{n, 0}), x.source(use{n, 1}), x.made(n)
	if codes == nil || codes.tensor == nil || scale == nil || made == nil {
		return nil
	}
	d := &dequantizer{
		made: made, codes: dtype.DType(codes.tensor.GetDataType()), dims: codes.tensor.GetDims(),
		block: intAttribute(n, "block_size"), zero: hasInput(n, 2), index: x, scaleCount: 1,
	}
	if scale.tensor != nil {
		d.scales = dtype.DType(scale.tensor.GetDataType())
		d.scaleCount, _ = dtype.Elements(scale.tensor.GetDims())
		d.scalar = len(scale.tensor.GetDims()) == 0
	} else { // themselves decoded
		d.scales, d.scaleCount = dtype.Float32, 2
	}
	axis := counted(intAttributeOr(n, "axis", 1), len(d.dims))
	if d.scaleCount == 1 && d.block == 0 {
		axis = 0
	}
	if axis < 0 || axis >= int64(len(d.dims)) || d.block < 0 || elements(d.dims) == 0 {
		return nil
	}
	d.axis = int(axis)
	if home := x.home[n]; home != nil {
		d.owner, d.outer = home.owner.GetOpType(), home.values[codes.name] != codes
	}
	return d
}

// length is that of the axis of blocks or channels.
func (d *dequantizer) length() int64 { return d.dims[d.axis] }

// blockSize is the block as options have it.
func (d *dequantizer) blockSize() int {
	if d.block == 0 || d.block >= d.length() {
		return PerChannel
	}
	return int(d.block)
}

// format is the one whose codes and scales these are; Float if none.
func (d *dequantizer) format() Format {
	for _, t := range formats[1:] {
		scaled := t.family == microscaling
		if t.codes == d.codes && t.family != lookup && scaled == (d.scales == dtype.Float8E8M0) {
			return t.format
		}
	}
	return Float
}

// taken tells whether a target takes the type.
func (d *dequantizer) taken(t Target) bool {
	f := d.format()
	_, ok := engineOf(t).support(f)
	return ok || f == Float // of which the table says nothing
}

// sum is the axis that the first reader sums over, if it is a product with the
// weight on its right; -1 if not.
func (d *dequantizer) sum() int {
	if len(d.dims) != 2 || len(d.made.uses) == 0 {
		return -1
	}
	u := d.made.uses[0]
	row := weightOpOf(u)
	if row == nil || u.node.GetOpType() != "MatMul" && u.node.GetOpType() != "Gemm" || u.input != 1 {
		return -1
	}
	axes, why := row.sums(u.node, u.input, 2)
	if why != "" || len(axes) != 1 {
		return -1
	}
	return axes[0]
}

// fused tells whether ONNX Runtime makes a MatMulNBits of it and its reader.
func (d *dequantizer) fused() bool {
	switch {
	case d.format().traits().family != integer || d.sum() != 0 || len(d.made.uses) != 1 || d.made.output:
		return false
	case d.index.home[d.made.node] != d.index.home[d.made.uses[0].node]:
		return false
	case d.block == 0:
		return d.scalar || d.axis == 1
	}
	return d.axis == 0 && slices.Contains(fusedBlocks, int(d.block))
}

// weightOnly tells whether a product or a table reads the weight, with activations
// that are not quantized.
func (d *dequantizer) weightOnly() bool {
	return len(d.made.uses) > 0 && !slices.ContainsFunc(d.made.uses, func(u use) bool {
		if weightOpOf(u) == nil {
			return true
		}
		for i := range u.node.Input {
			if v := d.index.source(use{u.node, i}); i != u.input && v != nil && v.node != nil && v.node.GetOpType() == "DequantizeLinear" {
				return true
			}
		}
		return false
	})
}
