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
