package onnxq

import (
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// com.microsoft's MatMulNBits reads a matrix [K, N] as the rows of its transpose:
//
//	B            uint8 [N, ⌈K/block⌉, block·bits/8]  codes, the first in the low bits; the last block padded
//	scales       float [N, ⌈K/block⌉]
//	zero_points  uint8 [N, ⌈⌈K/block⌉·bits/8⌉], packed like codes, or of the type of scales; 2^(bits-1) if absent
//	value        (code - zero point) · scale
//
// GatherBlockQuantized gathers from a tensor that is cut into blocks along one
// axis. Its codes are int4, uint4 or float8, or packed along the last axis into
// uint8, as its zero points then are.

// packedMatrix is the second matrix of a MatMulNBits.
func (f *folder) packedMatrix(n *onnxpb.NodeProto) (c *constant, obstacle string) {
	k, columns, block := intAttribute(n, "K"), intAttribute(n, "N"), intAttribute(n, "block_size")
	bits := intAttributeOr(n, "bits", 4)
	codes, scale := f.input(n, 1), f.input(n, 2)
	switch {
	case codes == nil || scale == nil || codes.num.stored == nil:
		return nil, "codes and scales are not constant"
	case intAttribute(n, "weight_prepacked") != 0:
		return nil, "its codes are in the layout of one device (weight_prepacked)"
	case bits != 2 && bits != 4 && bits != 8:
		return nil, fmt.Sprintf("codes of %d bits", bits)
	case block < 1 || k < 1 || columns < 1:
		return nil, fmt.Sprintf("K %d, N %d and block_size %d make no matrix", k, columns, block)
	}
	blocks := (k-1)/block + 1
	size, err := dtype.Elements([]int64{columns, blocks, block, bits})
	if err != nil || size%8 != 0 || codes.num.dtype != dtype.Uint8 || codes.num.size() != size/8 || block*bits%8 != 0 {
		return nil, "its codes have not the size of its matrix"
	}
	if !scale.num.dtype.Float() || scale.num.size() != columns*blocks {
		return nil, "its scales have not the size of its matrix"
	}
	if reason := f.groups(n, k, block); reason != "" {
		return nil, reason
	}
	d := &decoder{
		form: "MatMulNBits", codes: codes.tensor, scale: scale.tensor, codeType: unsignedTypes[bits],
		blocking: blocking{1, block}, s: scale.num,
		grid:   &grid{codes.num.stored, int(bits), columns, k, blocks * block},
		spread: spread{k: k, inner: 1, block: block, blocks: blocks},
	}
	d.x = d.grid.numbers()
	if reason := f.packedZeros(d, n, 3, columns, blocks, scale.num.dtype); reason != "" {
		return nil, reason
	}
	return &constant{num: dequantized(d.x, d.s, d.z, d.spread, scale.num.dtype), tensor: codes.tensor, weight: d}, ""
}

var unsignedTypes = map[int64]dtype.DType{2: dtype.Uint2, 4: dtype.Uint4, 8: dtype.Uint8}

// packedZeros finds the zero points of rows × blocks blocks.
func (f *folder) packedZeros(d *decoder, n *onnxpb.NodeProto, input int, rows, blocks int64, scaleType dtype.DType) (obstacle string) {
	bits := int64(d.grid.bits)
	if !hasInput(n, input) {
		d.z, d.middle = constantNumber(float32(int64(1)<<(bits-1)), dtype.Uint8), true
		return ""
	}
	zero := f.input(n, input)
	if zero == nil || zero.num.stored == nil {
		return "its zero points are not constant"
	}
	d.zero = zero.tensor
	if zero.num.dtype == scaleType && zero.num.size() == rows*blocks {
		d.z, d.floatZero = zero.num, true
		return ""
	}
	bytes := divideUp(blocks*bits, 8)
	if zero.num.dtype != dtype.Uint8 || zero.num.size() != rows*bytes {
		return "its zero points have not the size of its scales"
	}
	d.zeroGrid = &grid{zero.num.stored, int(bits), rows, blocks, bytes * 8 / bits}
	d.z = d.zeroGrid.numbers()
	return ""
}

// groups checks that g_idx, which permutes the blocks, leaves them in order.
func (f *folder) groups(n *onnxpb.NodeProto, k, block int64) (obstacle string) {
	if !hasInput(n, 4) {
		return ""
	}
	index := f.input(n, 4)
	if index == nil || index.num.stored == nil || index.num.dtype != dtype.Int32 || index.num.size() != k {
		return "its g_idx is not one constant number for each row"
	}
	for off := int64(0); off < k; off += longestRead {
		list, ok := readIntegers(index.num.stored, index.num.dtype, off, min(k-off, longestRead))
		if !ok {
			return "its g_idx cannot be read"
		}
		for i, v := range list {
			if v != (off+int64(i))/block {
				return "its g_idx permutes rows, which no other form does"
			}
		}
	}
	return ""
}

// packedTable is the tensor that a GatherBlockQuantized gathers from.
func (f *folder) packedTable(n *onnxpb.NodeProto) (c *constant, obstacle string) {
	data, scale := f.input(n, 0), f.input(n, 2)
	if data == nil || scale == nil || data.num.stored == nil || len(data.num.shape) == 0 {
		return nil, "codes and scales are not constant"
	}
	block, axis := intAttributeOr(n, "block_size", 128), intAttributeOr(n, "quantize_axis", 1)
	d := &decoder{form: "GatherBlockQuantized", codes: data.tensor, scale: scale.tensor, codeType: data.num.dtype, x: data.num, s: scale.num}
	shape := slices.Clone(data.num.shape)
	if axis = counted(axis, len(shape)); axis < 0 || axis >= int64(len(shape)) {
		return nil, fmt.Sprintf("quantize_axis %d of a tensor of rank %d", axis, len(shape))
	}
	if len(scale.num.shape) != len(shape) {
		return nil, "its scales have not the rank of its codes"
	}
	if !scale.num.dtype.Float() || !codeType(data.num.dtype) {
		return nil, fmt.Sprintf("codes of type %v, scales of type %v", data.num.dtype, scale.num.dtype)
	}
	last := len(shape) - 1
	if data.num.dtype == dtype.Uint8 {
		bits := intAttributeOr(n, "bits", 4)
		if bits != 2 && bits != 4 && bits != 8 {
			return nil, fmt.Sprintf("codes of %d bits", bits)
		}
		shape[last] *= 8 / bits
		size, err := dtype.Elements(shape)
		if err != nil || size == 0 {
			return nil, "its codes are no table"
		}
		d.codeType = unsignedTypes[bits]
		d.grid = &grid{data.num.stored, int(bits), size / shape[last], shape[last], shape[last]}
		d.x = d.grid.numbers().reshaped(shape)
	}
	if block == 0 {
		block = max(shape[axis], 1)
	}
	var ok bool
	if d.spread, ok = spreadOver(shape, scale.num.shape, axis, block); !ok && shape[axis] <= block {
		d.spread, ok = spreadBroadcast(shape, scale.num.shape) // float8 may have fewer scales
	}
	if !ok || block < 0 {
		return nil, "its scales have not the shape of its blocks"
	}
	d.blocking, d.perTensor = blocking{axis, block}, d.spread.single
	switch {
	case data.num.dtype == dtype.Uint8:
		blocks := scale.num.shape[last]
		if reason := f.packedZeros(d, n, 3, scale.num.size()/max(blocks, 1), blocks, 0); reason != "" {
			return nil, reason
		}
	case hasInput(n, 3):
		zero := f.input(n, 3)
		if zero == nil || zero.num.dtype != data.num.dtype || zero.num.size() != scale.num.size() {
			return nil, "its zero points are not constant, or not of the shape of its scales"
		}
		d.z, d.zero = zero.num, zero.tensor
	}
	made := dequantized(d.x, d.s, d.z, d.spread, scale.num.dtype)
	made.shape = shape
	return &constant{num: made, tensor: data.tensor, weight: d}, ""
}
