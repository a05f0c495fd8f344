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

	"onnxquant/internal/nearest"
	"onnxquant/internal/preset"
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
	wrong := err != nil || math.IsNaN(v) || math.IsInf(v, 0)
	switch {
	case l.kind == "C" && (wrong || v < -1 || v > 1):
		return errors.New("want a cosine, -1 to 1")
	case l.kind == "DB" && wrong:
		return errors.New("want a number of decibels, such as 20")
	case l.kind == "E" && (wrong || v < 0):
		return errors.New("want a number such as 0.05, 0 or more")
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
		text := "want minmax, mse or percentile:P, P from 50 to 100"
		if near, ok := nearest.Name(s, r.values()); ok {
			text += "; did you mean " + near + "?"
		}
		return errors.New(text)
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

// formatValue is the value of a flag that takes a format.
type formatValue struct{ choice[spec.Format] }

func newFormat(value *spec.Format, allowed []spec.Format) formatValue {
	return formatValue{choice[spec.Format]{value, allowed, "FORMAT"}}
}

func (f formatValue) Set(s string) error {
	for _, known := range f.allowed {
		if strings.EqualFold(string(known), s) {
			*f.value = known
			return nil
		}
	}
	if text, ok := flagHints[plainName(s)]; ok {
		return errors.New("it is no format; " + text)
	}
	switch near := spec.Similar(s); {
	case s == "":
		return errors.New("want a format")
	case len(near) == 0:
		return fmt.Errorf("there is no %s", s)
	default:
		return fmt.Errorf("there is no %s; did you mean %s?", s, oneOf(near))
	}
}

// bitCount is the value of --bits.
type bitCount struct{ value *int }

func (b bitCount) Set(s string) error {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil:
		n = 0
	case n == 16 || n == 32:
		return errors.New("want 2, 4 or 8; " + flagHints[fmt.Sprint("fp", n)])
	}
	if err := spec.CheckBits(n); err != nil {
		return err
	}
	*b.value = n
	return nil
}

func (b bitCount) String() string   { return "" }
func (b bitCount) Type() string     { return "N" }
func (b bitCount) values() []string { return []string{"2", "4", "8"} }

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
		word, err := pick(strings.TrimSpace(text), c.allowed)
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
func (c choices) addsUp()          {}

// pick finds a word among the allowed ones, in any case. The error names all where they are few,
// and those that may be meant.
func pick[T ~string](s string, allowed []T) (T, error) {
	const few = 8
	low := make([]string, len(allowed))
	for i, word := range allowed {
		if strings.EqualFold(string(word), s) {
			return word, nil
		}
		low[i] = strings.ToLower(string(word))
	}
	if other := T(otherNames[plainName(s)]); slices.Contains(allowed, other) {
		return "", fmt.Errorf("there is no %s; did you mean %s?", s, other)
	}
	text := "there is no " + s
	if len(allowed) <= few {
		text = "want " + oneOf(allowed)
	}
	var meant []T
	for _, near := range nearest.Names(strings.ToLower(s), low) {
		meant = append(meant, allowed[slices.Index(low, near)])
	}
	if len(meant) > 0 {
		text += fmt.Sprintf("; did you mean %s?", oneOf(meant))
	}
	return "", errors.New(text)
}

// dataPaths is the value of a flag that takes calibration data. If the flag is repeated, they add
// up.
type dataPaths struct{ value *[]string }

func (d dataPaths) Set(s string) error {
	if s == "" {
		return errors.New("want a file or folder of data, or self")
	}
	*d.value = append(*d.value, s)
	return nil
}

func (d dataPaths) String() string   { return "" }
func (d dataPaths) Type() string     { return "DATA" }
func (d dataPaths) values() []string { return []string{"self"} }
func (d dataPaths) orFile()          {}
func (d dataPaths) addsUp()          {}

// presetName is the value of a flag that takes a preset, by its name or in a file.
type presetName struct{ value *string }

func (p presetName) Set(s string) error { *p.value = s; return nil }
func (p presetName) String() string     { return "" }
func (p presetName) Type() string       { return "NAME" }
func (p presetName) values() []string   { return preset.Names() }
func (p presetName) orFile()            {}

// about says what a preset is for.
func (p presetName) about(name string) string {
	known, err := preset.Load(name)
	if err != nil {
		return ""
	}
	return known.About
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
func (s sizesOf) addsUp()        {}

// oneOf writes words as "a, b or c".
func oneOf[T ~string](words []T) string { return english.WordSeries(texts(words), "or") }

// oneAnd writes words as "a, b and c".
func oneAnd[T ~string](words []T) string { return english.WordSeries(texts(words), "and") }

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
