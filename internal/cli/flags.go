package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/nearest"
)

// A usageError says that the command line is wrong.
type usageError struct {
	message string
	flag    string // the flag it is about, if any
}

func (e *usageError) Error() string { return e.message }

func Usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// Refuse makes an error that is about the command line, and that says all about it.
func Refuse(err error) error { return &refusal{err} }

// A refusal is an error with the exit status of wrong usage.
type refusal struct{ error }

func (e *refusal) Unwrap() error { return e.error }

func NewFlagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("onnxquant", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	return fs
}

// Parse parses a command line. It refuses different values for a flag that takes one value.
func (a *App) Parse(fs *pflag.FlagSet, args []string) error {
	if err := a.ParseInOrder(fs, args); err != nil {
		return err
	}
	return givenOnce(fs)
}

// givenOnce refuses different values for a flag that takes one value: the last would silently win.
func givenOnce(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		values := slices.Compact(slices.Clone(f.Annotations[Given]))
		if len(values) > 1 && !addsUp(f) && err == nil {
			err = &usageError{fmt.Sprintf("--%s has one value, but is given as %s", f.Name, OneAnd(values)), f.Name}
		}
	})
	return err
}

// AlsoData makes --data another name of a flag of fs: every command that takes data understands it.
func AlsoData(fs *pflag.FlagSet, name string) {
	flag := fs.Lookup(name)
	flag.Usage += "; also --data"
	flag.Annotations = map[string][]string{otherNames: {"data"}}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == "data" {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}

// otherNames is the annotation of a flag that has its other names.
const otherNames = "other names"

// addsUp reports whether the values of a repeated flag are all used.
func addsUp(f *pflag.Flag) bool {
	_, list := f.Value.(pflag.SliceValue)
	_, adding := f.Value.(interface{ AddsUp() })
	return list || adding
}

// ParseInOrder parses args. If a flag that takes one value is repeated, the last value wins. A long flag
// may have one dash or two.
func (a *App) ParseInOrder(fs *pflag.FlagSet, args []string) error {
	err := fs.ParseAll(a.doubleDashes(fs, args), func(f *pflag.Flag, value string) error {
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[Given] = append(f.Annotations[Given], value)
		return fs.Set(f.Name, value)
	})
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
			return Usagef("unknown flag -%s%s", short, a.nearestFlag(fs, short))
		}
		name := unknown.GetSpecifiedName()
		return Usagef("unknown flag --%s%s", name, a.nearestFlag(fs, name))
	case errors.As(err, &missing):
		name := missing.GetFlag().Name
		return &usageError{fmt.Sprintf("--%s needs a value", name), name}
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		want := errors.Unwrap(err).Error()
		switch flag.Value.Type() {
		case "bool":
			want = "want true or false"
		case "int":
			want = "want a whole number"
		case "duration":
			want = "want a time such as 90s or 10m"
		case "uint64":
			want = "want a whole number, 0 or more"
		}
		return &usageError{fmt.Sprintf("--%s %q: %s", flag.Name, invalid.GetValue(), want), flag.Name}
	}
	return Usagef("%v", err)
}

// Given is the annotation of a flag that has its values as they were given.
const Given = "given"

// doubleDashes adds a dash to long flags of fs that have only one, and to words nearer to a long flag
// than to short flags: -bits is --bits, not -b with the value its. It does not change values of flags,
// nor arguments after --.
func (a *App) doubleDashes(fs *pflag.FlagSet, args []string) []string {
	args = slices.Clone(args)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		text, dashed := strings.CutPrefix(args[i], "-")
		if !dashed || text == "" {
			continue
		}
		text, double := strings.CutPrefix(text, "-")
		name, _, hasValue := strings.Cut(text, "=")
		flag := fs.Lookup(name)
		switch {
		case double:
		case flag != nil || a.isLong(fs, name):
			args[i] = "-" + args[i]
		default:
			flag, hasValue = lastShort(fs, text)
		}
		if flag != nil && !hasValue && flag.NoOptDefVal == "" {
			i++ // the next argument is its value
		}
	}
	return args
}

// isLong reports whether an unknown word behind one dash is meant for a long flag.
func (a *App) isLong(fs *pflag.FlagSet, name string) bool {
	const typos = 2
	if len(name) < 3 {
		return false
	}
	near, ok := nearest.Within(typos, name, flagNames(fs))
	return ok && near[0] == name[0] || a.hint(fs, name) != ""
}

// lastShort returns the last of the short flags in text, and whether its value is there, too.
func lastShort(fs *pflag.FlagSet, text string) (flag *pflag.Flag, hasValue bool) {
	for i := range len(text) {
		flag = fs.ShorthandLookup(text[i : i+1])
		if flag == nil || flag.NoOptDefVal == "" {
			return flag, i+1 < len(text)
		}
	}
	return flag, false
}

// LeaveOut refuses flags that were given. why says what makes them wrong.
func LeaveOut(fs *pflag.FlagSet, why string, names ...string) error {
	for _, name := range names {
		if fs.Changed(name) {
			return Usagef("%s: leave out --%s", why, name)
		}
	}
	return nil
}
