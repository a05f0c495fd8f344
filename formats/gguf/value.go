package gguf

import (
	"encoding/binary"
	"fmt"
)

// KeyValue is one entry of a file's metadata. The value is one of
//
//	uint8 int8 uint16 int16 uint32 int32 uint64 int64 float32 float64 bool string
//
// or a slice of one type; an array of arrays is an []any of slices.
type KeyValue struct {
	Key   string
	Value any
}

// The types of values.
const (
	typeUint8 uint32 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

var valueTypes = []string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64"}

// TypeName names the type of the value of a KeyValue, such as "uint32" or, for an array, "[]uint32".
// For other values it is empty.
func TypeName(v any) string {
	typ, elem, ok := typeOf(v)
	switch {
	case !ok:
		return ""
	case typ == typeArray:
		return "[]" + valueTypes[elem]
	}
	return valueTypes[typ]
}

// typeOf returns the type of a value and, for an array, the type of its elements.
func typeOf(v any) (typ, elem uint32, ok bool) {
	switch v.(type) {
	case uint8:
		return typeUint8, 0, true
	case int8:
		return typeInt8, 0, true
	case uint16:
		return typeUint16, 0, true
	case int16:
		return typeInt16, 0, true
	case uint32:
		return typeUint32, 0, true
	case int32:
		return typeInt32, 0, true
	case float32:
		return typeFloat32, 0, true
	case bool:
		return typeBool, 0, true
	case string:
		return typeString, 0, true
	case uint64:
		return typeUint64, 0, true
	case int64:
		return typeInt64, 0, true
	case float64:
		return typeFloat64, 0, true
	case []uint8:
		return typeArray, typeUint8, true
	case []int8:
		return typeArray, typeInt8, true
	case []uint16:
		return typeArray, typeUint16, true
	case []int16:
		return typeArray, typeInt16, true
	case []uint32:
		return typeArray, typeUint32, true
	case []int32:
		return typeArray, typeInt32, true
	case []float32:
		return typeArray, typeFloat32, true
	case []bool:
		return typeArray, typeBool, true
	case []string:
		return typeArray, typeString, true
	case []any:
		return typeArray, typeArray, true
	case []uint64:
		return typeArray, typeUint64, true
	case []int64:
		return typeArray, typeInt64, true
	case []float64:
		return typeArray, typeFloat64, true
	}
	return 0, 0, false
}

// appendValue appends an encoded value, without its type.
func appendValue(b []byte, v any) ([]byte, error) {
	typ, elem, ok := typeOf(v)
	if !ok {
		return nil, fmt.Errorf("GGUF has no values of Go type %T", v)
	}
	if typ == typeArray {
		b = binary.LittleEndian.AppendUint32(b, elem)
	}
	switch v := v.(type) {
	case string:
		return appendString(b, v), nil
	case []string:
		b = binary.LittleEndian.AppendUint64(b, uint64(len(v)))
		for _, s := range v {
			b = appendString(b, s)
		}
		return b, nil
	case []any:
		b = binary.LittleEndian.AppendUint64(b, uint64(len(v)))
		for _, inner := range v {
			if typ, _, ok := typeOf(inner); !ok || typ != typeArray {
				return nil, fmt.Errorf("an array of arrays holds a value of Go type %T", inner)
			}
			var err error
			if b, err = appendValue(b, inner); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	if typ == typeArray {
		b = binary.LittleEndian.AppendUint64(b, uint64(binary.Size(v)/width[elem]))
	}
	return binary.Append(b, binary.LittleEndian, v)
}

// width is the size of a number in bytes.
var width = [...]int{
	typeUint8: 1, typeInt8: 1, typeUint16: 2, typeInt16: 2, typeUint32: 4, typeInt32: 4,
	typeFloat32: 4, typeBool: 1, typeUint64: 8, typeInt64: 8, typeFloat64: 8,
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}
