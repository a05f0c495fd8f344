package cli

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
)

// Number is the value of a flag that takes an integer.
type Number[T int | int64] struct {
	Value *T
	Valid func(T) bool
	Want  string // valid numbers, for messages
}

func (n Number[T]) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || int64(T(v)) != v || !n.Valid(T(v)) {
		return errors.New("want " + n.Want)
	}
	*n.Value = T(v)
	return nil
}

// String returns the default for the help: none, because the usage text states it.
func (n Number[T]) String() string { return "" }
func (n Number[T]) Type() string   { return "N" }

func NotNegative[T int | int64](v *T) Number[T] {
	return Number[T]{v, func(v T) bool { return v >= 0 }, "a whole number, 0 or more"}
}

// ByteCount is the value of a flag that takes a number of bytes, such as 64MiB.
type ByteCount struct {
	Value *int64
	Least uint64
}

func (b ByteCount) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	switch {
	case err != nil || n < 1 || n > math.MaxInt64:
		return errors.New("want a size such as 64MiB")
	case n < b.Least:
		return fmt.Errorf("that is %s, at least %s are needed; want a size such as 64MiB", english.Plural(int(n), "byte", ""), humanize.IBytes(b.Least))
	}
	*b.Value = int64(n)
	return nil
}

func (b ByteCount) String() string { return "" }
func (b ByteCount) Type() string   { return "SIZE" }

// Share is the value of a flag that takes a share, such as 95% or 0.95. It refuses a
// bare 95: if that meant 95%, 0.95 could mean 0.95%.
type Share struct{ Value *float64 }

func (s Share) Set(text string) error {
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return errors.New("want a share such as 95% or 0.95")
	}
	*s.Value = v
	return nil
}

func (s Share) String() string { return "" }
func (s Share) Type() string   { return "SHARE" }

// Limit is the value of a flag that takes a finite number.
type Limit struct {
	Value *float64
	Kind  string // name of the value in the help
}

func (l Limit) Set(s string) error {
	v, err := strconv.ParseFloat(s, 64)
	wrong := err != nil || math.IsNaN(v) || math.IsInf(v, 0)
	switch {
	case l.Kind == "C" && (wrong || v < -1 || v > 1):
		return errors.New("want a cosine, -1 to 1")
	case l.Kind == "DB" && wrong:
		return errors.New("want a number of decibels, such as 20")
	case l.Kind == "E" && (wrong || v < 0):
		return errors.New("want a number such as 0.05, 0 or more")
	case l.Kind == "X" && (wrong || v <= 0):
		return errors.New("want a number such as 1.1, above 0")
	}
	*l.Value = v
	return nil
}

func (l Limit) String() string { return "" }
func (l Limit) Type() string   { return l.Kind }

// setDrop reads a share that is lost. A bare 1 may mean 1% or all: it is refused.
func setDrop(v *float64, text string) error {
	err := Share{v}.Set(text)
	if err != nil || *v == 1 && !strings.HasSuffix(text, "%") {
		return errors.New("want a share such as 1% or 0.01")
	}
	return nil
}

// Optional is the value of a flag that is nil without the flag: a share that is lost, if its Kind is SHARE, else a Limit.
type Optional struct {
	To   **float64
	Kind string
}

func (g Optional) Set(text string) (err error) {
	v := new(float64)
	if g.Kind == "SHARE" {
		err = setDrop(v, text)
	} else {
		err = Limit{v, g.Kind}.Set(text)
	}
	if err == nil {
		*g.To = v
	}
	return err
}

func (g Optional) String() string { return "" }
func (g Optional) Type() string   { return g.Kind }

// Choice is the value of a flag that takes one of several words, in any case.
type Choice[T ~string] struct {
	Value   *T
	Allowed []T
	Kind    string       // name of the value in the help
	Aliases map[string]T // words of other tools for values
}

func (c Choice[T]) Set(s string) error {
	word, err := pick(s, c.Allowed, c.Aliases)
	if err == nil {
		*c.Value = word
	}
	return err
}

func (c Choice[T]) String() string   { return "" }
func (c Choice[T]) Type() string     { return c.Kind }
func (c Choice[T]) Values() []string { return texts(c.Allowed) }

// Choices is the value of a flag that takes a list of allowed words in any case, separated
// by commas. If the flag is repeated, the lists add up.
type Choices struct {
	Value   *[]string
	Allowed []string
	Aliases map[string]string // words of other tools for values
}

func (c Choices) Set(s string) error {
	for _, text := range strings.Split(s, ",") {
		word, err := pick(strings.TrimSpace(text), c.Allowed, c.Aliases)
		if err != nil {
			return err
		}
		*c.Value = append(*c.Value, word)
	}
	return nil
}

func (c Choices) String() string   { return "" }
func (c Choices) Type() string     { return "LIST" }
func (c Choices) Values() []string { return c.Allowed }
func (c Choices) AddsUp()          {}

// pick finds a word among the allowed ones, ignoring case. The error lists similar words, and all allowed ones if these
// are few or none is similar.
func pick[T ~string](s string, allowed []T, aliases map[string]T) (T, error) {
	const few = 8
	low := make([]string, len(allowed))
	for i, word := range allowed {
		if strings.EqualFold(string(word), s) {
			return word, nil
		}
		low[i] = strings.ToLower(string(word))
	}
	if other, ok := aliases[PlainName(s)]; ok && slices.Contains(allowed, other) {
		return "", fmt.Errorf("there is no %s; did you mean %s?", s, other)
	}
	var meant []T
	for _, near := range nearest.Names(strings.ToLower(s), low) {
		meant = append(meant, allowed[slices.Index(low, near)])
	}
	text := "there is no " + s
	switch {
	case len(allowed) <= few:
		text = "want " + OneOf(allowed)
	case len(meant) == 0:
		text += "; want " + OneOf(allowed)
	}
	if len(meant) > 0 {
		text += fmt.Sprintf("; did you mean %s?", OneOf(meant))
	}
	return "", errors.New(text)
}

func texts[T ~string](words []T) (list []string) {
	for _, w := range words {
		list = append(list, string(w))
	}
	return list
}

// SizesOf is the value of a flag that takes NAME=N.
type SizesOf struct{ Value *map[string]int64 }

func (s SizesOf) Set(text string) error {
	name, size, ok := strings.Cut(text, "=")
	n, err := strconv.ParseInt(size, 10, 64)
	if !ok || name == "" || err != nil || n < 0 {
		return errors.New("want a name and a size, such as batch=4")
	}
	if *s.Value == nil {
		*s.Value = map[string]int64{}
	}
	(*s.Value)[name] = n
	return nil
}

func (s SizesOf) String() string { return "" }
func (s SizesOf) Type() string   { return "NAME=N" }
func (s SizesOf) AddsUp()        {}

// OneOf writes words as "a, b or c".
func OneOf[T ~string](words []T) string { return english.WordSeries(texts(words), "or") }

// OneAnd writes words as "a, b and c".
func OneAnd[T ~string](words []T) string { return english.WordSeries(texts(words), "and") }
