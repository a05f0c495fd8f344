package inspect

import (
	"cmp"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/reach"
	"onnxquant/internal/shapes"
	"onnxquant/internal/target"
	"onnxquant/spec"
)

// dequantizer is a DequantizeLinear of stored codes.
type dequantizer struct {
	made          *graph.Value // the decoded value
	stored        *graph.Value // the codes
	weight        string       // name of the weight
	codes, scales dtype.DType
	output        dtype.DType
	dims          []int64 // shape of the codes
	axis          int     // axis of the blocks, or of per-axis scales
	block         int64   // 0: none
	scaleCount    int64
	scalar        bool // the scale is a scalar
	computed      bool // nodes compute the scale, and not a DequantizeLinear alone
	zero          bool // there are zero points
	shifted       bool // some may not be 0
	nested        bool // it lies in a body of If, Loop or Scan
	outer         bool // its codes are outside of that body
	index         *graph.Graph
}

// dequantizerOf describes a node, or returns nil if it is not a valid DequantizeLinear of
// stored codes.
func dequantizerOf(x *graph.Graph, n *onnxpb.NodeProto) *dequantizer {
	if n.GetOpType() != "DequantizeLinear" || !graph.IsStandard(n.GetDomain()) {
		return nil
	}
	codes, scale, made := x.Source(n, 0), x.Source(n, 1), x.Made(n)
	if codes == nil || codes.Tensor == nil || scale == nil || made == nil {
		return nil
	}
	d := &dequantizer{
		made: made, stored: codes, codes: dtype.DType(codes.Tensor.GetDataType()), dims: codes.Tensor.GetDims(),
		block: graph.IntAttribute(n, "block_size"), zero: graph.HasInput(n, 2), index: x, scaleCount: 1,
	}
	if d.zero {
		d.shifted = shifted(x, x.Source(n, 2))
	}
	if scale.Tensor != nil {
		d.scales = dtype.DType(scale.Tensor.GetDataType())
		d.scaleCount, _ = dtype.Elements(scale.Tensor.GetDims())
		d.scalar = len(scale.Tensor.GetDims()) == 0
	} else { // decoded scales
		d.scales, d.scaleCount = dtype.Float32, 2
		d.computed = scale.Node.GetOpType() != "DequantizeLinear"
	}
	d.output = cmp.Or(dtype.DType(graph.IntAttribute(n, "output_dtype")), d.scales)
	axis := shapes.Axis(graph.IntAttributeOr(n, "axis", 1), len(d.dims))
	if d.scaleCount == 1 && d.block == 0 {
		axis = 0
	}
	if axis < 0 || axis >= int64(len(d.dims)) || d.block < 0 || shapes.Count(d.dims) == 0 {
		return nil
	}
	d.axis = int(axis)
	if home := x.Home(n); home != nil {
		d.nested, d.outer = x.Nested(made), home.Values[codes.Name] != codes
	}
	return d
}

// shifted reports whether zero points may not all be 0.
func shifted(x *graph.Graph, zero *graph.Value) bool {
	if zero == nil || zero.Tensor == nil {
		return true
	}
	content, err := x.File.Payload(zero.Tensor)
	if err != nil {
		return true
	}
	raw := make([]byte, min(content.Size(), 1<<16))
	for at := int64(0); at < content.Size(); at += int64(len(raw)) {
		raw = raw[:min(int64(len(raw)), content.Size()-at)]
		if buffer.ReadFull(content, raw, at) != nil || slices.ContainsFunc(raw, func(b byte) bool { return b != 0 }) {
			return true
		}
	}
	return false
}

// length is the length of the axis.
func (d *dequantizer) length() int64 { return d.dims[d.axis] }

// blockSize is the block size as in onnxq.Options.
func (d *dequantizer) blockSize() int {
	if d.block == 0 || d.block >= d.length() {
		return spec.PerChannel
	}
	return int(d.block)
}

// format is the format with these types of codes and scales; Float if no format has them.
func (d *dequantizer) format() spec.Format {
	for _, t := range spec.Table[1:] {
		scaled := t.Family == spec.Microscaling
		if t.Codes == d.codes && t.Family != spec.Lookup && scaled == (d.scales == dtype.Float8E8M0) {
			return t.Format
		}
	}
	return spec.Float
}

// supported reports whether a target supports the format.
func (d *dequantizer) supported(t spec.Target) bool {
	f := d.format()
	_, ok := target.Of(t).Support(f)
	return ok || f == spec.Float // unknown to the table
}

// sum is the axis that the first reader sums over, if it is a MatMul or Gemm with the weight as its
// second factor; else -1.
func (d *dequantizer) sum() int {
	if len(d.dims) != 2 || len(d.made.Uses) == 0 {
		return -1
	}
	u := d.made.Uses[0]
	row := reach.OperatorOf(u)
	if row == nil || u.Node.GetOpType() != "MatMul" && u.Node.GetOpType() != "Gemm" || u.Input != 1 {
		return -1
	}
	axes, why := row.Sums(u.Node, u.Input, 2)
	if why != "" || len(axes) != 1 {
		return -1
	}
	return axes[0]
}

// decoded describes it for the rules of package target.
func (d *dequantizer) decoded(shapes *graph.Shapes) target.Decoded {
	w := target.Decoded{Format: d.format(), DType: d.scales, Shape: d.dims, Axis: d.axis, Block: int(min(d.block, math.MaxInt32)),
		Zeros: d.zero, Opset: d.index.Opset, Nested: d.nested,
	}
	w.Product, w.Other = reach.ProductOf(d.index, shapes, d.made, d.scales)
	if d.block == 0 {
		w.Block = spec.PerChannel
		w.Axis = 1 - d.axis // scales along one axis are constant along the other axis
		if d.scalar || d.scaleCount == 1 && len(d.dims) == 2 && d.dims[1] == 1 {
			w.Axis = 0
		}
	}
	return w
}

// weightOnly reports whether all readers use it as a weight and read no other dequantized input.
func (d *dequantizer) weightOnly() bool {
	readers := reach.Of(d.index, d.made, d.dims).Leaves
	return len(readers) > 0 && !slices.ContainsFunc(readers, func(l reach.Leaf) bool {
		if reach.OperatorOf(l.Use) == nil {
			return true
		}
		for i := range l.Node.Input {
			if v := d.index.Source(l.Node, i); i != l.Input && v != nil && v.Node != nil && v.Node.GetOpType() == "DequantizeLinear" {
				return true
			}
		}
		return false
	})
}
