package lazy

import (
	"encoding/binary"
	"fmt"
	"io"

	"onnxquant/formats/dtype"
	"onnxquant/formats/fp8"
	"onnxquant/formats/mx"
	"onnxquant/int4"
	"onnxquant/internal/buffer"
	"onnxquant/internal/kernels"
)

// Float8Types gives the format of each float8 type.
var Float8Types = map[dtype.DType]fp8.Format{
	dtype.Float8E4M3FN:   fp8.E4M3FN,
	dtype.Float8E5M2:     fp8.E5M2,
	dtype.Float8E4M3FNUZ: fp8.E4M3FNUZ,
	dtype.Float8E5M2FNUZ: fp8.E5M2FNUZ,
}

// IntegerType reports whether the type is an integer that can be read.
func IntegerType(t dtype.DType) bool {
	return t.Integer() && t != dtype.Uint32 && t != dtype.Uint64
}

// CodeType reports whether a weight's codes may have the type.
func CodeType(t dtype.DType) bool {
	_, float8 := Float8Types[t]
	return IntegerType(t) && t != dtype.Int64 || float8 || t == dtype.Float4E2M1
}

// ReadNumbers reads len(dst) elements of a type from element off on.
func ReadNumbers(a *Arena, dst []float32, r io.ReaderAt, typ dtype.DType, off int64) error {
	switch typ {
	case dtype.Float32: // without a buffer in between
		raw := kernels.Bytes(dst)
		if err := buffer.ReadFull(r, raw, 4*off); err != nil {
			return err
		}
		typ.Decode(dst, raw)
		return nil
	case dtype.Int2, dtype.Uint2, dtype.Int4, dtype.Uint4, dtype.Int8, dtype.Uint8, dtype.Float4E2M1:
		return readCodes(a, dst, r, typ, off)
	}
	size := int(typ.Bits() / 8)
	raw, release := a.raw(len(dst) * size)
	defer release()
	if err := buffer.ReadFull(r, raw, off*int64(size)); err != nil {
		return err
	}
	return decode(dst, raw, typ)
}

// readCodes reads elements of a type of at most 8 bits, several of which may share a byte.
func readCodes(a *Arena, dst []float32, r io.ReaderAt, typ dtype.DType, off int64) error {
	signed := typ.Integer() && typ.Signed()
	q, release := a.raw(len(dst))
	defer release()
	if err := readPacked(a, q, r, int(typ.Bits()), signed, off); err != nil {
		return err
	}
	for i, c := range q {
		switch {
		case signed:
			dst[i] = float32(int8(c))
		case typ == dtype.Float4E2M1:
			dst[i] = mx.DecodeE2M1(c)
		default:
			dst[i] = float32(c)
		}
	}
	return nil
}

// decode decodes elements of a type of whole bytes.
func decode(dst []float32, raw []byte, typ dtype.DType) error {
	switch typ {
	case dtype.Float16, dtype.BFloat16, dtype.Float64:
		typ.Decode(dst, raw)
	case dtype.Int16:
		for i := range dst {
			dst[i] = float32(int16(binary.LittleEndian.Uint16(raw[2*i:])))
		}
	case dtype.Uint16:
		for i := range dst {
			dst[i] = float32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case dtype.Int32:
		for i := range dst {
			dst[i] = float32(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	case dtype.Int64:
		for i := range dst {
			dst[i] = float32(int64(binary.LittleEndian.Uint64(raw[8*i:])))
		}
	case dtype.Float8E8M0:
		for i, c := range raw {
			dst[i] = mx.DecodeE8M0(c)
		}
	default:
		f, ok := Float8Types[typ]
		if !ok {
			return fmt.Errorf("elements of type %v cannot be read as numbers", typ)
		}
		for i, c := range raw {
			dst[i] = f.Decode(c)
		}
	}
	return nil
}

// readPacked reads contiguous codes of 2, 4 or 8 bits, from code off on.
func readPacked(a *Arena, q []byte, r io.ReaderAt, bits int, signed bool, off int64) error {
	per := int64(8 / bits)
	head := int(off % per)
	raw, release := a.raw(int4.PackedLen(head+len(q), bits))
	defer release()
	if err := buffer.ReadFull(r, raw, off/per); err != nil {
		return err
	}
	return unpackFrom(a, q, raw, bits, signed, head)
}

// unpackFrom unpacks codes into q, without the first head codes.
func unpackFrom(a *Arena, q, raw []byte, bits int, signed bool, head int) error {
	if head == 0 {
		int4.Unpack(q, raw, bits, signed)
		return nil
	}
	all, release := a.raw(head + len(q))
	defer release()
	int4.Unpack(all, raw, bits, signed)
	copy(q, all[head:])
	return nil
}
