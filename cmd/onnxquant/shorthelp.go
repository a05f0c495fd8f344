package main

import (
	"fmt"
	"io"
	"onnxquant/internal/cli"
	"onnxquant/spec"
	"strings"

	"github.com/spf13/pflag"
)

// daily lists the flags of the short help, which fits on a screen, with their texts.
var daily = []struct{ flag, text string }{
	{"bits", "bits of a code: 2, 4 or 8 (default 4)"},
	{"block", "weights that share a scale; -1: a channel (default 128)"},
	{"format", "int4, uint8, nvfp4, mxfp8, nf4, q4_k, ..., for --bits"},
	{"zero-point", "asymmetric codes"},
	{"algorithm", "how codes are found: rtn, mse, best, ... (default rtn)"},
	{"target", "for " + cli.OneOf(spec.Targets())},
	{"ops", "operators whose weights are quantized, or all"},
	{"exclude", "keep weights with such a name in float"},
	{"float16", "make float16 what stays in float"},
	{"dry-run", "write nothing; show the plan, with reasons"},
}

// printDaily prints the beginning of the short help: the flags of daily use.
func printDaily(w io.Writer) {
	fmt.Fprint(w, `Usage: onnxquant [flags] IN OUT    quantize the weights of the ONNX model IN
       onnxquant COMMAND ...

`)
	fs := conversion().Flags()
	for _, d := range daily {
		flag := fs.Lookup(d.flag)
		kind, _ := pflag.UnquoteUsage(flag)
		short := "    "
		if flag.Shorthand != "" {
			short = "-" + flag.Shorthand + ", "
		}
		fmt.Fprintf(w, "  %s%-18s %s\n", short, strings.TrimSpace("--"+d.flag+" "+kind), d.text)
	}
	fmt.Fprintln(w)
}

// shortFooter ends the short help.
const shortFooter = `
Example: onnxquant -bits 4 -block 128 in.onnx out.onnx
'onnxquant help all' shows everything, 'onnxquant help COMMAND' a command,
'onnxquant help FLAG' a flag with an example.
`
