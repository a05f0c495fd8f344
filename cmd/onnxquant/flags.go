package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/nearest"
)

// A usageError says that the command line is wrong.
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

// nearestFlag suggests a flag for a misspelt one.
func nearestFlag(fs *pflag.FlagSet, name string) string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near, ok := nearest.Name(name, names); ok {
		return "; the nearest is --" + near
	}
	return ""
}

// doubleDashes adds a dash to long flags of fs that have only one. It does not change
// values of flags, nor arguments after --.
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
