package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"onnxquant/calib"
	"onnxquant/internal/nearest"
)

// A usageError is a wrong call, as opposed to a job that failed.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func newFlagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("onnxquant", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	return fs
}

// parseFlags parses args. A long flag may have one dash or two.
func parseFlags(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(doubleDashes(fs, args))
	var (
		unknown *pflag.NotExistError
		missing *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			return usagef("unknown flag -%s%s", short, nearestFlag(fs, short))
		}
		name := unknown.GetSpecifiedName()
		return usagef("unknown flag --%s%s", name, nearestFlag(fs, name))
	case errors.As(err, &missing):
		return usagef("--%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		want := errors.Unwrap(err).Error()
		switch flag.Value.Type() {
		case "bool":
			want = "want true or false"
		case "int":
			want = "want a whole number"
		case "uint64":
			want = "want a whole number, 0 or more"
		}
		return usagef("--%s %q: %s", flag.Name, invalid.GetValue(), want)
	}
	return usagef("%v", err)
}

// nearestFlag tells what was likely meant by a name that no flag has.
func nearestFlag(fs *pflag.FlagSet, name string) string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near, ok := nearest.Name(name, names); ok {
		return "; the nearest is --" + near
	}
	return ""
}

// doubleDashes gives the long flags of fs that are written with one dash their
// second. Values of flags, and what follows --, stay as they are.
func doubleDashes(fs *pflag.FlagSet, args []string) []string {
	args = slices.Clone(args)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		text, dashed := strings.CutPrefix(args[i], "-")
		if !dashed {
			continue
		}
		text, double := strings.CutPrefix(text, "-")
		name, _, hasValue := strings.Cut(text, "=")
		flag := fs.Lookup(name)
		if flag == nil {
			continue
		}
		if !double {
			args[i] = "-" + args[i]
		}
		if !hasValue && flag.NoOptDefVal == "" {
			i++ // the next argument is its value
		}
	}
	return args
}

// number is the value of a flag that takes a whole number.
type number[T int | int64] struct {
	value *T
	valid func(T) bool
	want  string // the valid ones, for messages
}

func (n number[T]) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || int64(T(v)) != v || !n.valid(T(v)) {
		return errors.New("want " + n.want)
	}
	*n.value = T(v)
	return nil
}

// String is the default for the help, which says it in words.
func (n number[T]) String() string { return "" }
func (n number[T]) Type() string   { return "N" }

func notNegative[T int | int64](v *T) number[T] {
	return number[T]{v, func(v T) bool { return v >= 0 }, "a whole number, 0 or more"}
}

// byteCount is the value of a flag that takes a number of bytes, with or without
// a unit.
type byteCount struct{ value *int64 }

func (b byteCount) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n < 1 || n > math.MaxInt64 {
		return errors.New("want a size such as 64MiB")
	}
	*b.value = int64(n)
	return nil
}

func (b byteCount) String() string { return "" }
func (b byteCount) Type() string   { return "SIZE" }

// share is the value of a flag that takes a part of a whole, such as 95% or 0.95. A
// bare 95 is refused, lest 0.95 were taken for a percentage where 95 is.
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

// limit is the value of a flag that takes a number, which is not infinite.
type limit struct {
	value *float64
	kind  string // for the help
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

// blockRange is the value of a flag that says how ranges of blocks are found.
type blockRange struct{ value *string }

func (r blockRange) Set(s string) error {
	m, err := calib.ParseMethod(s)
	if err != nil || m.Name != "minmax" && m.Name != "mse" && m.Name != "percentile" {
		return errors.New("want minmax, mse or percentile:P, P from 50 to 100")
	}
	*r.value = s
	return nil
}

func (r blockRange) String() string { return "" }
func (r blockRange) Type() string   { return "NAME" }

// choice is the value of a flag that takes one word of a few.
type choice[T ~string] struct {
	value   *T
	allowed []T
	kind    string // of word, for the help
}

func (c choice[T]) Set(s string) error {
	if !slices.Contains(c.allowed, T(s)) {
		return errors.New("want " + oneOf(c.allowed))
	}
	*c.value = T(s)
	return nil
}

func (c choice[T]) String() string { return "" }
func (c choice[T]) Type() string   { return c.kind }

// choices is the value of a flag that takes several words of a few, separated
// by commas or in several flags.
type choices struct {
	value   *[]string
	allowed []string
}

func (c choices) Set(s string) error {
	words := strings.Split(s, ",")
	for _, word := range words {
		if !slices.Contains(c.allowed, word) {
			return errors.New("want a list of " + oneOf(c.allowed))
		}
	}
	*c.value = append(*c.value, words...)
	return nil
}

func (c choices) String() string { return "" }
func (c choices) Type() string   { return "LIST" }

func oneOf[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// wrapped lists words in lines of at most that many characters.
func wrapped(words []string, width int) string {
	var b strings.Builder
	line := 0
	for i, word := range words {
		if i > 0 {
			b.WriteByte(',')
			line++
		}
		switch {
		case line+1+len(word) >= width: // with the comma that follows
			b.WriteByte('\n')
			line = 0
		case i > 0:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	return b.String()
}

// sizesOf is the value of a flag that gives names sizes, as NAME=N.
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
