package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/nearest"
)

// nearestFlag suggests flags for an unknown flag.
func (a *App) nearestFlag(fs *pflag.FlagSet, name string) string {
	if text := a.hint(fs, name); text != "" {
		return "; " + text
	}
	if near, ok := nearest.Name(PlainName(name), flagNames(fs)); ok {
		return "; did you mean --" + near + "?"
	}
	return ""
}

// hint explains a name that is not in fs: its meaning in other tools or in other commands.
func (a *App) hint(fs *pflag.FlagSet, name string) string {
	name = PlainName(name)
	if fs.Lookup(name) != nil {
		return "it is --" + name
	}
	if text := a.Meaning(fs, name); text != "" {
		return text
	}
	if text, ok := a.FlagHints[name]; ok {
		flag, _, _ := strings.Cut(text, " ")
		if !strings.HasPrefix(flag, "--") || Lookup(fs, flag) != nil {
			return text
		}
	}
	var others []string
	for _, cmd := range a.All() {
		if Lookup(cmd.Flags(), name) != nil {
			others = append(others, cmd.Line(""))
		}
	}
	if most := 2; len(others) > most+1 {
		others = append(others[:most:most], fmt.Sprintf("%d other commands", len(others)-most))
	}
	if len(others) > 0 {
		return "it is a flag of " + OneAnd(others)
	}
	return ""
}

// PlainName is a name as flags here have theirs.
func PlainName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }
