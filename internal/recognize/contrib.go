package recognize

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/formats/qlora"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// com.microsoft's MatMulNBits reads a matrix [K, N] as the rows of its transpose:
//
//	B            uint8 [N, ⌈K/block⌉, block·bits/8]  codes, the first in the low bits; the last block padded
//	scales       float [N, ⌈K/block⌉]
//	zero_points  uint8 [N, ⌈⌈K/block⌉·bits/8⌉], packed like codes, or of the type of scales; 2^(bits-1) if absent
//	value        (code - zero point) · scale
//
// GatherBlockQuantized gathers from a tensor in blocks along one axis. Its codes are int4, uint4 or
// float8, or they and the zero points are packed along the last axis into uint8.

// MatMulBnb4 reads a matrix [K, N] as the rows of its transpose, too:
//
//	B       uint8 [⌈N·K/2⌉]          positions in a table, the first of two in the high bits
//	absmax  float [⌈N·K/block⌉]      of blocks of the flat matrix
//	value   table[position] · absmax

// bnb4Matrix recognizes the weight of a MatMulBnb4.
func (f *Recognizer) bnb4Matrix(n *onnxpb.NodeProto) (c *Constant, obstacle string) {
	k, columns, block := graph.IntAttribute(n, "K"), graph.IntAttribute(n, "N"), graph.IntAttribute(n, "block_size")
	table, ok := bnb4Tables[graph.IntAttribute(n, "quant_type")]
	codes, scale := f.input(n, 1), f.input(n, 2)
	switch {
	case codes == nil || scale == nil || codes.Values.Stored == nil:
		return nil, "codes and scales are not constant"
	case !ok:
		return nil, fmt.Sprintf("quant_type %d", graph.IntAttribute(n, "quant_type"))
	case graph.IntAttributeOr(n, "transB", 1) == 0:
		return nil, "its matrix is not transposed (transB)"
	case block < 1 || k < 1 || columns < 1:
		return nil, fmt.Sprintf("invalid K %d, N %d or block_size %d", k, columns, block)
	}
	size, err := dtype.Elements([]int64{columns, k})
	if err != nil || codes.Values.DType != dtype.Uint8 || codes.Values.Size() != shapes.DivideUp(size, 2) {
		return nil, "the size of its codes does not fit K and N"
	}
	blocks := shapes.DivideUp(size, block)
	if !scale.Values.DType.Float() || scale.Values.Size() != blocks {
		return nil, "the size of its scales does not fit K and N"
	}
	values, typ := table.Values(), scale.Values.DType
	d := &Decoder{
		Form: "MatMulBnb4", Codes: codes.Source, Scale: scale.Source, CodeType: dtype.Uint4,
		blocking: blocking{1, block}, S: scale.Values,
		ScaleMap: lazy.ScaleMap{K: size, Inner: 1, Block: block, Blocks: blocks},
	}
	at := lazy.Grid{Stored: lazy.SwapHalves(codes.Values.Stored), Bits: 4, Rows: 1, Cols: size, Pitch: size}.Tensor()
	d.X = lazy.LookedUp(values[:], at, dtype.Float32)
	made := lazy.Dequantized(d.X, d.S, nil, d.ScaleMap, typ)
	return &Constant{Values: made.Reshaped([]int64{columns, k}), Source: codes.Source, Decoder: d}, ""
}

// bnb4Tables are the tables of each quant_type.
var bnb4Tables = map[int64]qlora.Table{0: qlora.FP4, 1: qlora.NF4}

// packedMatrix recognizes the weight of a MatMulNBits.
func (f *Recognizer) packedMatrix(n *onnxpb.NodeProto) (c *Constant, obstacle string) {
	k, columns, block := graph.IntAttribute(n, "K"), graph.IntAttribute(n, "N"), graph.IntAttribute(n, "block_size")
	bits := graph.IntAttributeOr(n, "bits", 4)
	codes, scale := f.input(n, 1), f.input(n, 2)
	switch {
	case codes == nil || scale == nil || codes.Values.Stored == nil:
		return nil, "codes and scales are not constant"
	case graph.IntAttribute(n, "weight_prepacked") != 0:
		return nil, "its codes are packed for one device (weight_prepacked)"
	case bits != 2 && bits != 4 && bits != 8:
		return nil, fmt.Sprintf("codes of %d bits", bits)
	case block < 1 || k < 1 || columns < 1:
		return nil, fmt.Sprintf("invalid K %d, N %d or block_size %d", k, columns, block)
	}
	blocks := (k-1)/block + 1
	size, err := dtype.Elements([]int64{columns, blocks, block, bits})
	if err != nil || size%8 != 0 || codes.Values.DType != dtype.Uint8 || codes.Values.Size() != size/8 || block*bits%8 != 0 {
		return nil, "the size of its codes does not fit K and N"
	}
	if !scale.Values.DType.Float() || scale.Values.Size() != columns*blocks {
		return nil, "the size of its scales does not fit K and N"
	}
	if reason := f.groups(n, k, block); reason != "" {
		return nil, reason
	}
	d := &Decoder{
		Form: "MatMulNBits", Codes: codes.Source, Scale: scale.Source, TensorScale: scale.factor, Scales: scale.stored, Step: scale.step, CodeType: unsignedTypes[bits],
		blocking: blocking{1, block}, S: scale.Values,
		Grid:     &lazy.Grid{Stored: codes.Values.Stored, Bits: int(bits), Rows: columns, Cols: k, Pitch: blocks * block},
		ScaleMap: lazy.ScaleMap{K: k, Inner: 1, Block: block, Blocks: blocks},
	}
	d.X = d.Grid.Tensor()
	if reason := f.packedZeros(d, n, 3, columns, blocks, scale.Values.DType); reason != "" {
		return nil, reason
	}
	return &Constant{Values: lazy.Dequantized(d.X, d.S, d.Z, d.ScaleMap, scale.Values.DType), Source: codes.Source, Decoder: d}, ""
}

var unsignedTypes = map[int64]dtype.DType{2: dtype.Uint2, 4: dtype.Uint4, 8: dtype.Uint8}

// packedZeros finds the zero points of rows × blocks blocks. Without any, it is 2^(bits-1).
func (f *Recognizer) packedZeros(d *Decoder, n *onnxpb.NodeProto, input int, rows, blocks int64, scaleType dtype.DType) (obstacle string) {
	bits := int64(d.Grid.Bits)
	if !graph.HasInput(n, input) {
		d.Z, d.Middle = lazy.Constant(float32(int64(1)<<(bits-1)), dtype.Uint8), true
		return ""
	}
	zero := f.input(n, input)
	if zero == nil || zero.Values.Stored == nil {
		return "its zero points are not constant"
	}
	d.Zero = zero.Source
	if zero.Values.DType == scaleType && zero.Values.Size() == rows*blocks {
		d.Z, d.FloatZero = zero.Values, true
		return ""
	}
	bytes := shapes.DivideUp(blocks*bits, 8)
	if zero.Values.DType != dtype.Uint8 || zero.Values.Size() != rows*bytes {
		return "the size of its zero points does not fit its scales"
	}
	d.ZeroGrid = &lazy.Grid{Stored: zero.Values.Stored, Bits: int(bits), Rows: rows, Cols: blocks, Pitch: bytes * 8 / bits}
	d.Z = d.ZeroGrid.Tensor()
	return ""
}

// groups checks that g_idx, which gives the block of each row, leaves the blocks in order.
func (f *Recognizer) groups(n *onnxpb.NodeProto, k, block int64) (obstacle string) {
	if !graph.HasInput(n, 4) {
		return ""
	}
	index := f.input(n, 4)
	if index == nil || index.Values.Stored == nil || index.Values.DType != dtype.Int32 || index.Values.Size() != k {
		return "its g_idx is not a constant with one number for each row"
	}
	for off := int64(0); off < k; off += lazy.MaxRead {
		list, ok := graph.ReadIntegers(index.Values.Stored, index.Values.DType, off, min(k-off, lazy.MaxRead))
		if !ok {
			return "its g_idx cannot be read"
		}
		for i, v := range list {
			if v != (off+int64(i))/block {
				return "its g_idx permutes rows, which no other form can express"
			}
		}
	}
	return ""
}

// packedTable recognizes the tensor that a GatherBlockQuantized gathers from.
func (f *Recognizer) packedTable(n *onnxpb.NodeProto) (c *Constant, obstacle string) {
	data, scale := f.input(n, 0), f.input(n, 2)
	if data == nil || scale == nil || data.Values.Stored == nil || len(data.Values.Shape) == 0 {
		return nil, "codes and scales are not constant"
	}
	rank := len(data.Values.Shape)
	axis := shapes.Axis(graph.IntAttributeOr(n, "quantize_axis", 1), rank)
	switch {
	case axis < 0 || axis >= int64(rank):
		return nil, fmt.Sprintf("quantize_axis %d of a tensor of rank %d", axis, rank)
	case len(scale.Values.Shape) != rank:
		return nil, "its scales and codes differ in rank"
	case !scale.Values.DType.Float() || !lazy.CodeType(data.Values.DType):
		return nil, fmt.Sprintf("codes of type %v, scales of type %v", data.Values.DType, scale.Values.DType)
	}
	d := &Decoder{Form: "GatherBlockQuantized", Codes: data.Source, Scale: scale.Source, TensorScale: scale.factor, Scales: scale.stored, Step: scale.step, CodeType: data.Values.DType, X: data.Values, S: scale.Values}
	if data.Values.DType == dtype.Uint8 {
		if obstacle = d.unpackTable(n, data); obstacle != "" {
			return nil, obstacle
		}
	}
	if obstacle = d.mapTable(axis, graph.IntAttributeOr(n, "block_size", 128)); obstacle != "" {
		return nil, obstacle
	}
	if obstacle = f.tableZeros(d, n, data, scale); obstacle != "" {
		return nil, obstacle
	}
	values := lazy.Dequantized(d.X, d.S, d.Z, d.ScaleMap, scale.Values.DType)
	values.Shape = d.X.Shape
	return &Constant{Values: values, Source: data.Source, Decoder: d}, ""
}

// unpackTable sets the codes of a table that are packed along the last axis.
func (d *Decoder) unpackTable(n *onnxpb.NodeProto, data *Constant) (obstacle string) {
	bits := graph.IntAttributeOr(n, "bits", 4)
	if bits != 2 && bits != 4 && bits != 8 {
		return fmt.Sprintf("codes of %d bits", bits)
	}
	shape := slices.Clone(data.Values.Shape)
	last := len(shape) - 1
	shape[last] *= 8 / bits
	size, err := dtype.Elements(shape)
	if err != nil || size == 0 {
		return "its tensor of codes is empty or too large"
	}
	d.CodeType = unsignedTypes[bits]
	d.Grid = &lazy.Grid{Stored: data.Values.Stored, Bits: int(bits), Rows: size / shape[last], Cols: shape[last], Pitch: shape[last]}
	d.X = d.Grid.Tensor().Reshaped(shape)
	return ""
}

// mapTable maps the codes of a table to their scales. block 0 means one block for the whole
// axis.
func (d *Decoder) mapTable(axis, block int64) (obstacle string) {
	shape, scales := d.X.Shape, d.S.Shape
	if block == 0 {
		block = max(shape[axis], 1)
	}
	var ok bool
	if d.ScaleMap, ok = lazy.MapBlocks(shape, scales, axis, block); !ok && shape[axis] <= block {
		d.ScaleMap, ok = lazy.MapBroadcast(shape, scales) // float8 may have fewer scales
	}
	if !ok || block < 0 {
		return "the shape of its scales does not fit its blocks"
	}
	d.blocking, d.PerTensor = blocking{axis, block}, d.ScaleMap.Single
	return ""
}

// tableZeros finds the zero points of a table: packed if its codes are, else of their type.
func (f *Recognizer) tableZeros(d *Decoder, n *onnxpb.NodeProto, data, scale *Constant) (obstacle string) {
	if data.Values.DType == dtype.Uint8 {
		blocks := scale.Values.Shape[len(scale.Values.Shape)-1]
		return f.packedZeros(d, n, 3, scale.Values.Size()/max(blocks, 1), blocks, 0)
	}
	if !graph.HasInput(n, 3) {
		return ""
	}
	zero := f.input(n, 3)
	if zero == nil || zero.Values.DType != data.Values.DType || zero.Values.Size() != scale.Values.Size() {
		return "its zero points are not constant, or their shape is not that of its scales"
	}
	d.Z, d.Zero = zero.Values, zero.Source
	return ""
}
