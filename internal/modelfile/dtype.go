package modelfile

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"onnxquant/internal/onnxpb"
)

// DType is a TensorProto.DataType.
type DType int32

// The types this program computes with.
const (
	Float32  = DType(onnxpb.TensorProto_FLOAT)
	Float16  = DType(onnxpb.TensorProto_FLOAT16)
	BFloat16 = DType(onnxpb.TensorProto_BFLOAT16)
	Float64  = DType(onnxpb.TensorProto_DOUBLE)
	String   = DType(onnxpb.TensorProto_STRING)
	Uint8    = DType(onnxpb.TensorProto_UINT8)
	Int8     = DType(onnxpb.TensorProto_INT8)
	Uint4    = DType(onnxpb.TensorProto_UINT4)
	Int4     = DType(onnxpb.TensorProto_INT4)
	Uint2    = DType(onnxpb.TensorProto_UINT2)
	Int2     = DType(onnxpb.TensorProto_INT2)
	Int32    = DType(onnxpb.TensorProto_INT32)

	Float8E4M3FN = DType(onnxpb.TensorProto_FLOAT8E4M3FN)
	Float8E5M2   = DType(onnxpb.TensorProto_FLOAT8E5M2)
	Float8E8M0   = DType(onnxpb.TensorProto_FLOAT8E8M0)
	Float4E2M1   = DType(onnxpb.TensorProto_FLOAT4E2M1)
)

// layouts gives the bits an element takes in raw_data, and the typed field
// that may hold it instead; there, four-bit elements are packed two to an
// entry and two-bit elements four to an entry, as they are in raw_data.
var layouts = map[DType]struct {
	bits  int64
	field protowire.Number
}{
	Float32:                                  {32, fieldFloatData},
	DType(onnxpb.TensorProto_COMPLEX64):      {64, fieldFloatData},
	Float64:                                  {64, fieldDoubleData},
	DType(onnxpb.TensorProto_COMPLEX128):     {128, fieldDoubleData},
	DType(onnxpb.TensorProto_INT64):          {64, fieldInt64Data},
	DType(onnxpb.TensorProto_UINT64):         {64, fieldUint64Data},
	DType(onnxpb.TensorProto_UINT32):         {32, fieldUint64Data},
	Int32:                                    {32, fieldInt32Data},
	DType(onnxpb.TensorProto_INT16):          {16, fieldInt32Data},
	DType(onnxpb.TensorProto_UINT16):         {16, fieldInt32Data},
	Float16:                                  {16, fieldInt32Data},
	BFloat16:                                 {16, fieldInt32Data},
	Int8:                                     {8, fieldInt32Data},
	Uint8:                                    {8, fieldInt32Data},
	DType(onnxpb.TensorProto_BOOL):           {8, fieldInt32Data},
	Float8E4M3FN:                             {8, fieldInt32Data},
	DType(onnxpb.TensorProto_FLOAT8E4M3FNUZ): {8, fieldInt32Data},
	Float8E5M2:                               {8, fieldInt32Data},
	DType(onnxpb.TensorProto_FLOAT8E5M2FNUZ): {8, fieldInt32Data},
	Float8E8M0:                               {8, fieldInt32Data},
	DType(onnxpb.TensorProto_FLOAT6E2M3):     {8, fieldInt32Data},
	DType(onnxpb.TensorProto_FLOAT6E3M2):     {8, fieldInt32Data},
	Int4:                                     {4, fieldInt32Data},
	Uint4:                                    {4, fieldInt32Data},
	Float4E2M1:                               {4, fieldInt32Data},
	Int2:                                     {2, fieldInt32Data},
	Uint2:                                    {2, fieldInt32Data},
}

// String returns the standard's name of the type, such as FLOAT16.
func (d DType) String() string {
	if name, ok := onnxpb.TensorProto_DataType_name[int32(d)]; ok {
		return name
	}
	return fmt.Sprintf("type %d", int32(d))
}

// Float reports whether the type is one that weights are quantized from.
func (d DType) Float() bool {
	return d == Float32 || d == Float16 || d == BFloat16 || d == Float64
}

// Bits returns the size of an element in bits, 0 for types of no fixed size.
func (d DType) Bits() int64 { return layouts[d].bits }

// Bytes returns the size of n elements, packed.
func (d DType) Bytes(n int64) int64 {
	bits := layouts[d].bits
	per := max(8/max(bits, 1), 1) // elements a byte
	if bits >= 8 {
		return n * (bits / 8)
	}
	return n/per + (n%per+per-1)/per
}

// entries returns the range of the entries that a typed field may hold for the
// type. For types whose bits it holds, they may be sign-extended.
func (d DType) entries() (lo, hi int64) {
	bits := max(layouts[d].bits, 8)
	switch {
	case d == DType(onnxpb.TensorProto_BOOL):
		return 0, 1
	case bits == 64:
		return math.MinInt64, math.MaxInt64
	case d == Int8, d == DType(onnxpb.TensorProto_INT16), d == Int32:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case d == DType(onnxpb.TensorProto_UINT32):
		return 0, math.MaxUint32
	}
	return -1 << (bits - 1), 1<<bits - 1
}

// Elements multiplies the dimensions of a tensor. It fails where one is
// negative, or where the size in bytes would not fit an int64.
func Elements(dims []int64) (int64, error) {
	n := int64(1)
	for _, d := range dims {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension %d", d)
		}
		if d == 0 {
			n = 0
		}
	}
	for _, d := range dims {
		if n == 0 {
			break
		}
		if d > math.MaxInt64/16/n {
			return 0, fmt.Errorf("the product of the dimensions overflows")
		}
		n *= d
	}
	return n, nil
}
