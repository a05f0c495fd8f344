package cli

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// FlagsText writes the given flags, without some, in one line, sorted by name. Of a file it has the name
// without its folder.
func FlagsText(fs *pflag.FlagSet, without []string) string {
	var words []string
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(without, f.Name) {
			return
		}
		for _, value := range f.Annotations[Given] {
			words = append(words, flagText(f, value))
		}
	})
	slices.Sort(words)
	return strings.Join(words, " ")
}

// OtherFlags returns the names of the flags that are not among these names.
func OtherFlags(fs *pflag.FlagSet, names []string) (others []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(names, f.Name) {
			others = append(others, f.Name)
		}
	})
	return others
}

// Joined returns the flags given in either set as words --name=value, sorted by name. Where both have a flag that takes one
// value, own's counts.
func Joined(all, own *pflag.FlagSet) (words []string) {
	all.VisitAll(func(f *pflag.Flag) {
		before, after := f.Annotations[Given], own.Lookup(f.Name).Annotations[Given]
		if len(after) > 0 && !addsUp(f) {
			before = nil
		}
		for _, value := range slices.Concat(before, after) {
			words = append(words, "--"+f.Name+"="+value)
		}
	})
	slices.SortStableFunc(words, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		return strings.Compare(nameA, nameB)
	})
	return words
}

func flagText(f *pflag.Flag, value string) string {
	if kind, _ := pflag.UnquoteUsage(f); kind == "FILE" {
		value = filepath.Base(value)
	}
	if f.NoOptDefVal != "" && value == f.NoOptDefVal {
		return "--" + f.Name
	}
	if strings.ContainsAny(value, " \t\n\"'*?[]$") || value == "" {
		value = strconv.Quote(value)
	}
	if f.NoOptDefVal != "" {
		return "--" + f.Name + "=" + value
	}
	return "--" + f.Name + " " + value
}
