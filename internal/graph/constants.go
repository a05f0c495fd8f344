package graph

import (
	"encoding/binary"
	"io"
	"math"
	"slices"

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
	if v.Node != nil && IsOperator(v.Node, "Constant") {
		if a := Attribute(v.Node, "value_ints"); a != nil && a.GetRefAttrName() == "" {
			return a.Ints, len(a.Ints) <= shapes.MaxRank
		}
	}
	return nil, false
}

// ConstantFloat returns the only element of a tensor of floats, if it is constant.
func (x *Graph) ConstantFloat(v *Value) (float32, bool) {
	switch {
	case v == nil || v.Input && !v.MustBeInput:
		return 0, false
	case v.Tensor == nil:
		n := v.Node
		if n == nil || n.GetOpType() != "Constant" || !IsStandard(n.GetDomain()) {
			return 0, false
		}
		a := Attribute(n, "value_float")
		return a.GetF(), a != nil && a.GetRefAttrName() == ""
	}
	typ := dtype.DType(v.Tensor.GetDataType())
	if n, err := dtype.Elements(v.Tensor.GetDims()); err != nil || n != 1 || !typ.Float() {
		return 0, false
	}
	p, err := x.File.Payload(v.Tensor)
	if err != nil {
		return 0, false
	}
	raw, one := make([]byte, typ.Bytes(1)), make([]float32, 1)
	if buffer.ReadFull(p, raw, 0) != nil {
		return 0, false
	}
	typ.Decode(one, raw)
	return one[0], true
}

// TakesAll reports whether an Expand or a Slice surely returns its input. That has rank axes or more.
func (x *Graph) TakesAll(n *onnxpb.NodeProto, rank int) bool {
	all := func(input int, wanted func(int64) bool) bool {
		list, ok := x.ConstantInts(n, input)
		return ok && len(list) <= rank && !slices.ContainsFunc(list, func(v int64) bool { return !wanted(v) })
	}
	if n.GetOpType() == "Expand" {
		return all(1, func(length int64) bool { return length == 1 })
	}
	return all(1, func(start int64) bool { return start == 0 }) && all(2, func(end int64) bool { return end >= math.MaxInt32 }) &&
		(!HasInput(n, 4) || all(4, func(step int64) bool { return step == 1 }))
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
