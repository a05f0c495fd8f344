package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/summary"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// rewriteFlags are the flags of dequantize and restyle.
type rewriteFlags struct {
	reportFlags
	opts         restyle.Options
	noProvenance bool
}

func (f *rewriteFlags) define(fs *pflag.FlagSet) {
	o := &f.opts
	defineExternalData(fs, &o.ExternalData, &o.ExternalDataName, &o.ShardSize)
	defineResources(fs, &o.Threads, &o.Memory)
	defineNoVerify(fs, &o.NoVerify)
	defineNoProvenance(fs, &f.noProvenance)
	f.defineForce(fs)
	f.reportFlags.define(fs, "print the report as JSON", "print a line for each quantized weight")
}

func (f *rewriteFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	f.define(fs)
	return fs
}

// parse parses the arguments, and returns the input and output file.
func (f *rewriteFlags) parse(c *cli.Console, command string, fs *pflag.FlagSet, args []string) (in, out string, err error) {
	if err := c.App.Parse(fs, args); err != nil || f.help {
		return "", "", err
	}
	if err := f.check(); err != nil {
		return "", "", err
	}
	f.opts.Provenance = step(command, fs, f.noProvenance)
	if in, out, err = cli.InOut(fs, false); err == nil {
		err = cli.WantFile(in, out, ".onnx")
	}
	if err == nil {
		err = f.checkForce(out, modelfile.KindONNX, in)
	}
	return in, out, err
}

// run calls rewrite and prints its report. done labels the number of changed weights.
func (f *rewriteFlags) run(c *cli.Console, done string, rewrite func() (*restyle.Report, error)) error {
	start := time.Now()
	bar := cli.NewProgress(c, f.quiet)
	f.opts.Progress = bar.Update
	report, err := rewrite()
	bar.Clear()
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		c.Warn(w)
	}
	warnOfUnchanged(c, report.Weights)
	if len(report.Weights) == 0 {
		c.Warn("no quantized weights found: the output is a copy of the input")
	}
	if f.verbose {
		summary.RewrittenTable(c.Stderr, report.Weights)
	}
	if !f.quiet {
		cli.PrintSummaryFacts(c.Stderr, summary.Rewritten(report, done, time.Since(start)))
	}
	if f.json {
		return c.JSON(report)
	}
	return nil
}

// warnOfUnchanged lists the weights that keep their form: for each form and reason, the first weight
// and the number of the rest.
func warnOfUnchanged(c *cli.Console, weights []restyle.Weight) {
	type kind struct{ form, reason string }
	var kinds []kind // in the order of the weights
	names := map[kind][]string{}
	for _, w := range weights {
		if w.Reason == "" {
			continue
		}
		k := kind{w.Form, w.Reason}
		if names[k] == nil {
			kinds = append(kinds, k)
		}
		names[k] = append(names[k], w.Name)
	}
	for _, k := range kinds {
		first := names[k][0]
		if rest := len(names[k]) - 1; rest > 0 {
			c.Warn(fmt.Sprintf("%s and %s stay %s: %s", first, cli.Others(rest), k.form, k.reason))
		} else {
			c.Warn(fmt.Sprintf("%s stays %s: %s", first, k.form, k.reason))
		}
	}
}

func dequantizeCommand() cli.Command {
	return cli.Command{
		Name: "dequantize", Summary: "convert quantized weights back to float",
		Args:    []string{"[flags] IN OUT"},
		Example: "in.onnx out.onnx",
		Text: `Writes the model IN to OUT with quantized weights converted to float tensors of
exactly the same values. IN may come from any tool. It may store weights for
DequantizeLinear (also after QuantizeLinear), table lookups, MatMulNBits and
GatherBlockQuantized, or for operators that compute with codes, as ONNX Runtime's
quantize_dynamic and quantize_static write them: these become float operators.`,
		Flags: func() *pflag.FlagSet { return new(rewriteFlags).flagSet() },
		Run:   runDequantize,
	}
}

func runDequantize(ctx context.Context, c *cli.Console, args []string) error {
	var f rewriteFlags
	in, out, err := f.parse(c, "dequantize", f.flagSet(), args)
	if err != nil {
		return err
	}
	if f.help {
		return c.Help("dequantize")
	}
	return f.run(c, "dequantized", func() (*restyle.Report, error) { return restyle.Dequantize(ctx, in, out, f.opts) })
}

// restyleFlags are the flags of restyle.
type restyleFlags struct {
	rewrite rewriteFlags
	style   spec.Style
}

func (f *restyleFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	fs.Var(cli.Choice[spec.Style]{Value: &f.style, Allowed: []spec.Style{spec.DQ, spec.NBits}, Kind: "STYLE"}, "style",
		"dq: DequantizeLinear of the ONNX standard; nbits:\nMatMulNBits, GatherBlockQuantized and QMoE of\nONNX Runtime")
	fs.Var(specvalue.AccuracyLevel{To: &f.rewrite.opts.AccuracyLevel}, "accuracy-level", specvalue.AccuracyLevelHelp)
	defineNoFoldBias(fs, &f.rewrite.opts.NoFoldBias)
	f.rewrite.define(fs)
	return fs
}

func restyleCommand() cli.Command {
	return cli.Command{
		Name: "restyle", Summary: "change the style of quantized weights",
		Args:    []string{"--style dq|nbits [flags] IN OUT"},
		Example: "in.onnx out.onnx",
		Text: `Writes the quantized model IN, from any tool, to OUT with its weights in another
style. No weight is quantized again: it keeps exactly its values, or it is not
changed.`,
		Flags: func() *pflag.FlagSet { return new(restyleFlags).flagSet() },
		Run:   runRestyle,
	}
}

func runRestyle(ctx context.Context, c *cli.Console, args []string) error {
	var f restyleFlags
	in, out, err := f.rewrite.parse(c, "restyle", f.flagSet(), args)
	if err != nil {
		return err
	}
	if f.rewrite.help {
		return c.Help("restyle")
	}
	if f.style == "" {
		return cli.Usagef("--style is required: dq or nbits")
	}
	return f.rewrite.run(c, "restyled", func() (*restyle.Report, error) { return restyle.Restyle(ctx, in, out, f.style, f.rewrite.opts) })
}
