package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

// rewriteFlags are those of the commands that give quantized weights another form.
type rewriteFlags struct {
	opts                       onnxq.RewriteOptions
	json, quiet, verbose, help bool
}

func (f *rewriteFlags) add(fs *pflag.FlagSet) {
	o := &f.opts
	fs.Var(choice[spec.ExternalData]{&o.ExternalData, []spec.ExternalData{spec.ExternalAuto, spec.ExternalAlways, spec.ExternalNever}, "WHEN"}, "external-data",
		"when tensors go to OUT.data: always, never, or auto:\nif OUT would pass 2 GiB (default auto)")
	fs.Var(notNegative(&o.Threads), "threads",
		"threads to use (default: one for each CPU)")
	fs.Var(byteCount{&o.Memory}, "memory",
		"buffers for tensors, all threads together, such as 32MiB\n(default 64MiB)")
	fs.BoolVar(&o.NoVerify, "no-verify", false,
		"do not read OUT back to check it")
	fs.BoolVar(&f.json, "json", false,
		"print the report as JSON")
	fs.BoolVar(&f.quiet, "quiet", false,
		"print nothing but errors, warnings and what was asked for")
	fs.BoolVar(&f.verbose, "verbose", false,
		"list what became of each weight")
	fs.BoolVarP(&f.help, "help", "h", false,
		"print this help")
}

// parse parses the arguments of a command, which names an input and an output.
func (f *rewriteFlags) parse(fs *pflag.FlagSet, args []string) (in, out string, err error) {
	if err := parseFlags(fs, args); err != nil || f.help {
		return "", "", err
	}
	if f.quiet && f.verbose {
		return "", "", usagef("--quiet and --verbose exclude each other")
	}
	return new(convertFlags).files(fs.Args())
}

// run rewrites a model and tells what became of its weights.
func (f *rewriteFlags) run(c *console, what string, rewrite func() (*onnxq.RewriteReport, error)) error {
	start := time.Now()
	bar := newProgress(c, f.quiet)
	f.opts.Progress = bar.update
	report, err := rewrite()
	bar.clear()
	if err != nil {
		return err
	}
	changed := 0
	for _, w := range report.Weights {
		if w.Changed {
			changed++
		}
	}
	warnOfLeft(c, report.Weights)
	if len(report.Weights) == 0 {
		c.warn("no quantized weight was found: the output is a copy")
	}
	if f.verbose {
		rows := [][]string{{"NAME", "SHAPE", "DTYPE", "CODES", "FORM", "BECAME", "BYTES"}}
		for _, w := range report.Weights {
			rows = append(rows, []string{name(w.Name), shape(w.Shape), w.DType, w.CodeType, w.Form, w.NewForm, byteSize(w.Bytes) + " -> " + byteSize(w.OutBytes)})
		}
		printTable(c.stderr, rows)
		fmt.Fprintln(c.stderr)
	}
	if !f.quiet {
		written := printable(report.Output)
		if report.Data != "" {
			written += " and " + printable(report.Data)
		}
		if report.Verified {
			written += ", read back and checked"
		} else {
			written += ", not checked"
		}
		elapsed := time.Since(start)
		rate := float64(report.OutBytes) / max(elapsed.Seconds(), 1e-3)
		printFacts(c.stderr, []fact{
			{what, fmt.Sprintf("%d of %d quantized weights", changed, len(report.Weights))},
			{"size", sizes(report.InBytes, report.OutBytes)},
			{"time", fmt.Sprintf("%.2f s, %s/s", elapsed.Seconds(), humanize.IBytes(uint64(rate)))},
			{"written", written},
		})
	}
	if f.json {
		return c.json(report)
	}
	return nil
}

// warnOfLeft names the weights that stay as they are, the first of each kind.
func warnOfLeft(c *console, weights []onnxq.RewrittenWeight) {
	type kind struct{ form, reason string }
	var kinds []kind // in the order in which they come
	left := map[kind][]string{}
	for _, w := range weights {
		if w.Reason == "" {
			continue
		}
		k := kind{w.Form, w.Reason}
		if left[k] == nil {
			kinds = append(kinds, k)
		}
		left[k] = append(left[k], w.Name)
	}
	for _, k := range kinds {
		first := left[k][0]
		if rest := len(left[k]) - 1; rest > 0 {
			c.warn(fmt.Sprintf("%s and %s stay %s: %s", first, others(rest), k.form, k.reason))
		} else {
			c.warn(fmt.Sprintf("%s stays %s: %s", first, k.form, k.reason))
		}
	}
}

func runDequantize(ctx context.Context, c *console, args []string) error {
	var f rewriteFlags
	fs := newFlagSet()
	f.add(fs)
	in, out, err := f.parse(fs, args)
	if err != nil {
		return err
	}
	if f.help {
		fmt.Fprint(c.stdout, `Usage: onnxquant dequantize [flags] IN OUT

Writes the model IN to OUT with every quantized weight folded back into a float
tensor that holds exactly what it stands for. It may be in any form, from any
tool: DequantizeLinear, also behind QuantizeLinear, a table lookup, MatMulNBits,
GatherBlockQuantized.

Flags:
`, fs.FlagUsages())
		return nil
	}
	return f.run(c, "unfolded", func() (*onnxq.RewriteReport, error) { return onnxq.Dequantize(ctx, in, out, f.opts) })
}

func runRestyle(ctx context.Context, c *console, args []string) error {
	var f rewriteFlags
	var style spec.Style
	fs := newFlagSet()
	fs.Var(choice[spec.Style]{&style, []spec.Style{spec.DQ, spec.NBits}, "STYLE"}, "style",
		"dq, the standard's DequantizeLinear, or nbits, the\nMatMulNBits and GatherBlockQuantized of ONNX Runtime")
	f.add(fs)
	in, out, err := f.parse(fs, args)
	if err != nil {
		return err
	}
	if f.help {
		fmt.Fprint(c.stdout, `Usage: onnxquant restyle --style dq|nbits [flags] IN OUT

Writes the quantized model IN, from any tool, to OUT with its weights in another
style. Codes are moved, not computed: a weight stands for the same values, bit
for bit, or stays as it was.

Flags:
`, fs.FlagUsages())
		return nil
	}
	if style == "" {
		return usagef("--style is missing: dq or nbits")
	}
	return f.run(c, "restyled", func() (*onnxq.RewriteReport, error) { return onnxq.Restyle(ctx, in, out, style, f.opts) })
}
