package onnxq

import (
	"encoding/binary"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// constantInts returns the few integers that an input of a node holds, if they are
// constant.
func (x *graphIndex) constantInts(n *onnxpb.NodeProto, input int) ([]int64, bool) {
	v := x.source(use{n, input})
	switch {
	case v == nil:
		return nil, false
	case v.tensor != nil && (!v.input || v.mustBeInput):
		n, err := dtype.Elements(v.tensor.GetDims())
		if err != nil || n > maxRank || v.tensor.GetDataType() != int32(onnxpb.TensorProto_INT64) {
			return nil, false
		}
		p, err := x.file.Payload(v.tensor)
		if err != nil {
			return nil, false
		}
		return readIntegers(p, dtype.Int64, 0, n)
	}
	if v.node != nil && v.node.GetOpType() == "Constant" && standardDomain(v.node.GetDomain()) {
		if a := attribute(v.node, "value_ints"); a != nil && a.GetRefAttrName() == "" {
			return a.Ints, len(a.Ints) <= maxRank
		}
	}
	return nil, false
}

// readIntegers reads elements of type int32 or int64.
func readIntegers(r io.ReaderAt, dtype dtype.DType, off, n int64) ([]int64, bool) {
	size := dtype.Bits() / 8
	raw := make([]byte, n*size)
	if readAt(r, raw, off*size) != nil {
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
