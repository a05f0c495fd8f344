package main

import (
	"errors"
	"strings"

	"onnxquant/formats/gguf"
	"onnxquant/internal/cli"
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
	return cli.Choice[string]{Value: &(*t.value)[len(*t.value)-1].Type, Allowed: ggufmodel.Types(), Kind: ""}.Set(s[i+1:])
}

func (t typeRules) String() string { return "" }
func (t typeRules) Type() string   { return "GLOB=TYPE" }
func (t typeRules) AddsUp()        {}

// metadata is the value of a flag that takes KEY=TYPE:VALUE.
type metadata struct{ value *[]gguf.KeyValue }

func (m metadata) Set(s string) error {
	key, rest, ok := strings.Cut(s, "=")
	typ, text, typed := strings.Cut(rest, ":")
	if !ok || !typed || key == "" {
		return errors.New("want KEY=TYPE:VALUE")
	}
	v, err := gguf.ParseValue(typ, text)
	if err != nil {
		return err
	}
	*m.value = append(*m.value, gguf.KeyValue{Key: key, Value: v})
	return nil
}

func (m metadata) String() string { return "" }
func (m metadata) Type() string   { return "KEY=TYPE:VALUE" }
func (m metadata) AddsUp()        {}
