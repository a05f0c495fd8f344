package modelfile

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"onnxquant/formats/dtype"
)

// typedFields lists, by element type, the field that may hold the elements instead of raw_data.
// Four-bit elements are packed two to an entry and two-bit elements four, as in raw_data.
var typedFields = map[dtype.DType]protowire.Number{
	dtype.Float32:        fieldFloatData,
	dtype.Complex64:      fieldFloatData,
	dtype.Float64:        fieldDoubleData,
	dtype.Complex128:     fieldDoubleData,
	dtype.Int64:          fieldInt64Data,
	dtype.Uint64:         fieldUint64Data,
	dtype.Uint32:         fieldUint64Data,
	dtype.Int32:          fieldInt32Data,
	dtype.Int16:          fieldInt32Data,
	dtype.Uint16:         fieldInt32Data,
	dtype.Float16:        fieldInt32Data,
	dtype.BFloat16:       fieldInt32Data,
	dtype.Int8:           fieldInt32Data,
	dtype.Uint8:          fieldInt32Data,
	dtype.Bool:           fieldInt32Data,
	dtype.Float8E4M3FN:   fieldInt32Data,
	dtype.Float8E4M3FNUZ: fieldInt32Data,
	dtype.Float8E5M2:     fieldInt32Data,
	dtype.Float8E5M2FNUZ: fieldInt32Data,
	dtype.Float8E8M0:     fieldInt32Data,
	dtype.Float6E2M3:     fieldInt32Data,
	dtype.Float6E3M2:     fieldInt32Data,
	dtype.Int4:           fieldInt32Data,
	dtype.Uint4:          fieldInt32Data,
	dtype.Float4E2M1:     fieldInt32Data,
	dtype.Int2:           fieldInt32Data,
	dtype.Uint2:          fieldInt32Data,
}

// entries returns the range of the entries that a typed field may hold for the
// type. For types whose bits it holds, they may be sign-extended.
func entries(t dtype.DType) (lo, hi int64) {
	bits := max(t.Bits(), 8)
	switch {
	case t == dtype.Bool:
		return 0, 1
	case bits == 64:
		return math.MinInt64, math.MaxInt64
	case t == dtype.Int8, t == dtype.Int16, t == dtype.Int32:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case t == dtype.Uint32:
		return 0, math.MaxUint32
	}
	return -1 << (bits - 1), 1<<bits - 1
}
