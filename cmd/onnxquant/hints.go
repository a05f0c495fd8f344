package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/spec"
)

// aliases are other names of commands; "" is the conversion.
var aliases = map[string]string{"convert": "", "quantize": "", "quantise": "", "info": "inspect"}

// otherMeaning suggests a flag for an unknown name that is no flag of another tool.
func otherMeaning(fs *pflag.FlagSet, name string) string {
	if fs.Lookup("no-gate") != nil && cli.Lookup(new(convertFlags).flagSet(), name) != nil {
		return "flags of the conversions come after --"
	}
	if slices.Contains([]string{"o", "out", "output"}, name) && fs.Lookup("html") != nil {
		return "--html FILE names the page; IN and OUT are the first arguments"
	}
	if fs.Lookup("format") != nil && slices.Contains(specvalue.CodedFormats(), spec.Format(name)) {
		return "it is --format " + name
	}
	if digits := strings.Trim(strings.TrimSuffix(name, "bit"), "-"); fs.Lookup("bits") != nil && slices.Contains([]string{"2", "4", "8"}, digits) {
		return "it is --bits " + digits
	}
	return ""
}
