package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"onnxquant/formats/gguf"
	"onnxquant/internal/nearest"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/onnxq/spec"
)

// number is the value of a flag that takes an integer.
type number[T int | int64] struct {
	value *T
	valid func(T) bool
	want  string // valid numbers, for messages
}

func (n number[T]) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || int64(T(v)) != v || !n.valid(T(v)) {
		return errors.New("want " + n.want)
	}
	*n.value = T(v)
	return nil
}

// String returns the default for the help: none, because the usage text has it.
func (n number[T]) String() string { return "" }
func (n number[T]) Type() string   { return "N" }

func notNegative[T int | int64](v *T) number[T] {
	return number[T]{v, func(v T) bool { return v >= 0 }, "a whole number, 0 or more"}
}

// byteCount is the value of a flag that takes a number of bytes, such as 64MiB.
type byteCount struct {
	value *int64
	least uint64
}

func (b byteCount) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	switch {
	case err != nil || n < 1 || n > math.MaxInt64:
		return errors.New("want a size such as 64MiB")
	case n < b.least:
		return fmt.Errorf("that is %s, at least %s are needed; want a size such as 64MiB", english.Plural(int(n), "byte", ""), humanize.IBytes(b.least))
	}
	*b.value = int64(n)
	return nil
}

func (b byteCount) String() string { return "" }
func (b byteCount) Type() string   { return "SIZE" }

// share is the value of a flag that takes a share, such as 95% or 0.95. It refuses a
// bare 95: if that meant 95%, 0.95 could mean 0.95%.
type share struct{ value *float64 }

func (s share) Set(text string) error {
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return errors.New("want a share such as 95% or 0.95")
	}
	*s.value = v
	return nil
}

func (s share) String() string { return "" }
func (s share) Type() string   { return "SHARE" }

// limit is the value of a flag that takes a finite number.
type limit struct {
	value *float64
	kind  string // name of the value in the help
}

func (l limit) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return errors.New("want a number such as 0.05")
	}
	*l.value = v
	return nil
}

func (l limit) String() string { return "" }
func (l limit) Type() string   { return l.kind }

// blockRange is the value of a flag that takes the range method of a block.
type blockRange struct{ value *spec.Range }

func (r blockRange) Set(s string) error {
	s = strings.ToLower(s)
	if s == "percentile" {
		return errors.New("percentile needs the share of values to cover, such as percentile:99.9")
	}
	parsed, err := spec.ParseRange(s)
	if err != nil || s == "" {
		return errors.New("want minmax, mse or percentile:P, P from 50 to 100")
	}
	*r.value = parsed
	return nil
}

func (r blockRange) String() string   { return "" }
func (r blockRange) Type() string     { return "NAME" }
func (r blockRange) values() []string { return []string{"minmax", "mse", "percentile:99.9"} }

// choice is the value of a flag that takes one of several words, in any case.
type choice[T ~string] struct {
	value   *T
	allowed []T
	kind    string // name of the value in the help
}

func (c choice[T]) Set(s string) error {
	word, err := pick(s, c.allowed)
	if err == nil {
		*c.value = word
	}
	return err
}

func (c choice[T]) String() string   { return "" }
func (c choice[T]) Type() string     { return c.kind }
func (c choice[T]) values() []string { return texts(c.allowed) }

// choices is the value of a flag that takes a list of allowed words in any case, separated
// by commas. If the flag is repeated, the lists add up.
type choices struct {
	value   *[]string
	allowed []string
}

func (c choices) Set(s string) error {
	for _, text := range strings.Split(s, ",") {
		word, err := pick(text, c.allowed)
		if err != nil {
			return err
		}
		*c.value = append(*c.value, word)
	}
	return nil
}

func (c choices) String() string   { return "" }
func (c choices) Type() string     { return "LIST" }
func (c choices) values() []string { return c.allowed }

// pick finds a word among the allowed ones, in any case. The error names the nearest one, or
// all where they are few.
func pick[T ~string](s string, allowed []T) (T, error) {
	const few = 7
	low := make([]string, len(allowed))
	for i, word := range allowed {
		if strings.EqualFold(string(word), s) {
			return word, nil
		}
		low[i] = strings.ToLower(string(word))
	}
	near, ok := nearest.Name(strings.ToLower(s), low)
	if len(allowed) <= few || !ok {
		return "", errors.New("want " + oneOf(allowed))
	}
	return "", fmt.Errorf("there is no %s; the nearest is %s", s, allowed[slices.Index(low, near)])
}

func texts[T ~string](words []T) (list []string) {
	for _, w := range words {
		list = append(list, string(w))
	}
	return list
}

// sizesOf is the value of a flag that takes NAME=N.
type sizesOf struct{ value *map[string]int64 }

func (s sizesOf) Set(text string) error {
	name, size, ok := strings.Cut(text, "=")
	n, err := strconv.ParseInt(size, 10, 64)
	if !ok || name == "" || err != nil || n < 0 {
		return errors.New("want a name and a size, such as batch=4")
	}
	if *s.value == nil {
		*s.value = map[string]int64{}
	}
	(*s.value)[name] = n
	return nil
}

func (s sizesOf) String() string { return "" }
func (s sizesOf) Type() string   { return "NAME=N" }

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

// oneOf writes words as "a, b or c".
func oneOf[T ~string](words []T) string { return joined(words, "or") }

// oneAnd writes words as "a, b and c".
func oneAnd[T ~string](words []T) string { return joined(words, "and") }

func joined[T ~string](words []T, last string) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" " + last + " ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// accuracyLevel is the value of a flag that takes an accuracy_level as MatMulNBits has it.
type accuracyLevel struct{ value *spec.AccuracyLevel }

func (a accuracyLevel) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 4 {
		return errors.New("want 0 to 4")
	}
	*a.value = spec.AccuracyLevel(n)
	if n == 0 {
		*a.value = spec.AccuracyUnset
	}
	return nil
}

func (a accuracyLevel) String() string { return "" }
func (a accuracyLevel) Type() string   { return "N" }

// accuracyLevelHelp describes the flag --accuracy-level.
const accuracyLevelHelp = "accuracy_level of MatMulNBits: 4 rounds activations to 8 bits,\n0.5 to 1 % error in the outputs; 1 does not, and is much slower\nin ONNX Runtime; 0: no attribute (default 4)"
