package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/onnxq/provenance"
)

// unrecorded lists the flags that do not change what a command writes.
var unrecorded = []string{"threads", "memory", "no-verify", "strict", "min-coverage", "dry-run", "json", "quiet", "verbose", "no-provenance", "link", "force", "report", "resume"}

func defineNoProvenance(fs *pflag.FlagSet, no *bool) {
	fs.BoolVar(no, "no-provenance", false,
		"do not record in OUT's metadata what made it: the version, the\nflags and a hash of IN")
}

// step describes a command for the metadata of its output; nil with --no-provenance.
func step(command string, fs *pflag.FlagSet, no bool) *provenance.Step {
	if no {
		return nil
	}
	return &provenance.Step{Tool: "onnxquant", Version: buildVersion(), Command: command, Options: optionsText(fs)}
}

// optionsText writes the given flags in one line, sorted by name. Of a file it has the name
// without its folder.
func optionsText(fs *pflag.FlagSet) string {
	var words []string
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(unrecorded, f.Name) {
			return
		}
		for _, value := range f.Annotations[given] {
			words = append(words, optionText(f, value))
		}
	})
	slices.Sort(words)
	return strings.Join(words, " ")
}

func optionText(f *pflag.Flag, value string) string {
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
