package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"onnxquant/formats/gguf"
	"onnxquant/onnxq/ggufmodel"
)

// typeRules is the value of a flag that takes GLOB=TYPE. The glob may contain =.
type typeRules struct{ value *[]ggufmodel.TypeRule }

func (t typeRules) Set(s string) error {
	i := strings.LastIndexByte(s, '=')
	if i <= 0 || i == len(s)-1 {
		return errors.New("want GLOB=TYPE")
	}
	*t.value = append(*t.value, ggufmodel.TypeRule{Pattern: s[:i]})
	return choice[string]{&(*t.value)[len(*t.value)-1].Type, ggufmodel.Types(), ""}.Set(s[i+1:])
}

func (t typeRules) String() string { return "" }
func (t typeRules) Type() string   { return "GLOB=TYPE" }
func (t typeRules) addsUp()        {}

// metadata is the value of a flag that takes KEY=TYPE:VALUE.
type metadata struct{ value *[]gguf.KeyValue }

func (m metadata) Set(s string) error {
	key, rest, ok := strings.Cut(s, "=")
	typ, text, typed := strings.Cut(rest, ":")
	if !ok || !typed || key == "" {
		return errors.New("want KEY=TYPE:VALUE")
	}
	v, err := metadataValue(typ, text)
	if err != nil {
		return err
	}
	*m.value = append(*m.value, gguf.KeyValue{Key: key, Value: v})
	return nil
}

func (m metadata) String() string { return "" }
func (m metadata) Type() string   { return "KEY=TYPE:VALUE" }
func (m metadata) addsUp()        {}

var metadataTypes = []string{"str", "bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"}

func metadataValue(typ, text string) (any, error) {
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
	if !slices.Contains(metadataTypes, typ) {
		return nil, errors.New("want one of the types " + oneOf(metadataTypes))
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
