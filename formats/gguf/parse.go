package gguf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// typeNames are the short names of types that ParseValue takes.
var typeNames = []string{"str", "bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"}

// ParseValue returns the value of metadata that a text stands for. Types are str, bool and the numbers u8, i8,
// u16, i16, u32, i32, u64, i64, f32 and f64.
func ParseValue(typ, text string) (any, error) {
	bad := fmt.Errorf("%q is not a valid %s", text, typ)
	switch typ {
	case "str":
		return text, nil
	case "bool":
		if text != "true" && text != "false" {
			return nil, bad
		}
		return text == "true", nil
	}
	if !slices.Contains(typeNames, typ) {
		return nil, errors.New("want one of the types " + strings.Join(typeNames[:len(typeNames)-1], ", ") + " or " + typeNames[len(typeNames)-1])
	}
	bits, _ := strconv.Atoi(typ[1:])
	var u uint64
	var i int64
	var f float64
	var err error
	switch typ[0] {
	case 'u':
		u, err = strconv.ParseUint(text, 10, bits)
	case 'i':
		i, err = strconv.ParseInt(text, 10, bits)
	case 'f':
		f, err = strconv.ParseFloat(text, bits)
	}
	if err != nil {
		return nil, bad
	}
	return map[string]any{
		"u8": uint8(u), "u16": uint16(u), "u32": uint32(u), "u64": u,
		"i8": int8(i), "i16": int16(i), "i32": int32(i), "i64": i,
		"f32": float32(f), "f64": f,
	}[typ], nil
}
