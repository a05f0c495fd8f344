package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/preset"
	"onnxquant/spec"
)

// daily lists the flags of the short help, which fits on a screen, with their texts.
var daily = []struct{ flag, text string }{
	{"bits", "bits of a code: 2, 4 or 8 (default 4)"},
	{"block", "weights per scale; -1: a whole channel (default 128)"},
	{"format", "int4, uint8, nvfp4, mxfp8, nf4, q4_k, ..., for --bits"},
	{"algorithm", "how codes are found: rtn, mse, best, ... (default rtn)"},
	{"target", "for " + cli.OneOf(spec.Targets())},
	{"calib", "codes by samples of inputs; self: of a language model"},
	{"activations", "dynamic or static: int8 arithmetic, too"},
	{"auto", "mix formats: the least error at this size of OUT"},
	{"preset", cli.OneOf(preset.Names())},
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
		fmt.Fprintf(w, "  %s%-19s %s\n", short, strings.TrimSpace("--"+d.flag+" "+kind), d.text)
	}
	fmt.Fprintln(w)
}

// shortFooter ends the short help.
const shortFooter = `
Example: onnxquant -bits 4 -block 128 in.onnx out.onnx
More: onnxquant help all, help COMMAND, or help FLAG (with an example)
`
