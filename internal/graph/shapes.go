package graph

import (
	"encoding/binary"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// ConstantInts returns the integers of an input, such as a shape or axes, if they are
// constant and at most shapes.MaxRank.
func (x *Graph) ConstantInts(n *onnxpb.NodeProto, input int) ([]int64, bool) {
	v := x.Source(n, input)
	switch {
	case v == nil:
		return nil, false
	case v.Tensor != nil && (!v.Input || v.MustBeInput):
		n, err := dtype.Elements(v.Tensor.GetDims())
		if err != nil || n > shapes.MaxRank || v.Tensor.GetDataType() != int32(onnxpb.TensorProto_INT64) {
			return nil, false
		}
		p, err := x.File.Payload(v.Tensor)
		if err != nil {
			return nil, false
		}
		return ReadIntegers(p, dtype.Int64, 0, n)
	}
	if v.Node != nil && v.Node.GetOpType() == "Constant" && IsStandard(v.Node.GetDomain()) {
		if a := Attribute(v.Node, "value_ints"); a != nil && a.GetRefAttrName() == "" {
			return a.Ints, len(a.Ints) <= shapes.MaxRank
		}
	}
	return nil, false
}

// ReadIntegers reads n elements of type int32 or int64 from element off on.
func ReadIntegers(r io.ReaderAt, dtype dtype.DType, off, n int64) ([]int64, bool) {
	size := dtype.Bits() / 8
	raw := make([]byte, n*size)
	if buffer.ReadFull(r, raw, off*size) != nil {
		return nil, false
	}
	list := make([]int64, n)
	for i := range list {
		if size == 4 {
			list[i] = int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		} else {
			list[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	}
	return list, true
}
