package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/internal/modelfile"
	"onnxquant/onnxq/restyle"
	"onnxquant/onnxq/spec"
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
	fs := newFlagSet()
	f.define(fs)
	return fs
}

// parse parses the arguments, and returns the input and output file.
func (f *rewriteFlags) parse(command string, fs *pflag.FlagSet, args []string) (in, out string, err error) {
	if err := parseFlags(fs, args); err != nil || f.help {
		return "", "", err
	}
	if err := f.check(); err != nil {
		return "", "", err
	}
	f.opts.Provenance = step(command, fs, f.noProvenance)
	if in, out, err = inOut(fs, false); err == nil {
		err = wantFile(in, out, ".onnx")
	}
	if err == nil {
		err = f.checkForce(out, modelfile.KindONNX, in)
	}
	return in, out, err
}

// run calls rewrite and prints its report. done labels the number of changed weights.
func (f *rewriteFlags) run(c *console, done string, rewrite func() (*restyle.Report, error)) error {
	start := time.Now()
	bar := newProgress(c, f.quiet)
	f.opts.Progress = bar.update
	report, err := rewrite()
	bar.clear()
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		c.warn(w)
	}
	warnOfUnchanged(c, report.Weights)
	if len(report.Weights) == 0 {
		c.warn("no quantized weights found: the output is a copy of the input")
	}
	if f.verbose {
		printRewritten(c.stderr, report.Weights)
	}
	if !f.quiet {
		printSummaryFacts(c.stderr, rewriteFacts(report, done, time.Since(start)))
	}
	if f.json {
		return c.json(report)
	}
	return nil
}

func printRewritten(w io.Writer, weights []restyle.Weight) {
	rows := [][]string{{"NAME", "SHAPE", "DTYPE", "CODES", "FORM", "NEW FORM", "BYTES"}}
	for _, r := range weights {
		rows = append(rows, []string{name(r.Name), shape(r.Shape), r.DType, r.CodeType, r.Form, r.NewForm, byteSize(r.Bytes) + " -> " + byteSize(r.OutBytes)})
	}
	printTable(w, rows)
	fmt.Fprintln(w)
}

func rewriteFacts(r *restyle.Report, done string, elapsed time.Duration) []fact {
	changed := 0
	for _, w := range r.Weights {
		if w.Changed {
			changed++
		}
	}
	facts := []fact{{done, fmt.Sprintf("%d of %d quantized weights", changed, len(r.Weights))}}
	if text := activationsText(r.Activations); text != "" {
		facts = append(facts, fact{"kept", "activations: " + text})
	}
	return append(facts,
		fact{"size", sizes(r.InBytes, r.OutBytes)},
		timeFact(elapsed, r.OutBytes),
		writtenFact(r.Output, r.Data, r.MoreData, r.Verified, r.Replaced),
	)
}

// warnOfUnchanged names the weights that keep their form: for each form and reason, the
// first weight and the number of the others.
func warnOfUnchanged(c *console, weights []restyle.Weight) {
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
			c.warn(fmt.Sprintf("%s and %s stay %s: %s", first, others(rest), k.form, k.reason))
		} else {
			c.warn(fmt.Sprintf("%s stays %s: %s", first, k.form, k.reason))
		}
	}
}

func dequantizeCommand() command {
	return command{
		name: "dequantize", summary: "convert quantized weights back to float",
		args:    []string{"[flags] IN OUT"},
		example: "in.onnx out.onnx",
		text: `Writes the model IN to OUT with quantized weights converted to float tensors of
exactly the same values. IN may come from any tool. It may store weights for
DequantizeLinear (also after QuantizeLinear), table lookups, MatMulNBits and
GatherBlockQuantized, or for operators that compute with codes, as ONNX Runtime's
quantize_dynamic and quantize_static write them: these become float operators.`,
		flags: func() *pflag.FlagSet { return new(rewriteFlags).flagSet() },
		run:   runDequantize,
	}
}

func runDequantize(ctx context.Context, c *console, args []string) error {
	var f rewriteFlags
	in, out, err := f.parse("dequantize", f.flagSet(), args)
	if err != nil {
		return err
	}
	if f.help {
		return c.help("dequantize")
	}
	return f.run(c, "dequantized", func() (*restyle.Report, error) { return restyle.Dequantize(ctx, in, out, f.opts) })
}

// restyleFlags are the flags of restyle.
type restyleFlags struct {
	rewrite rewriteFlags
	style   spec.Style
}

func (f *restyleFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	fs.Var(choice[spec.Style]{&f.style, []spec.Style{spec.DQ, spec.NBits}, "STYLE"}, "style",
		"dq: DequantizeLinear of the ONNX standard; nbits:\nMatMulNBits and GatherBlockQuantized of ONNX Runtime")
	fs.Var(accuracyLevel{&f.rewrite.opts.AccuracyLevel}, "accuracy-level", accuracyLevelHelp)
	defineNoFoldBias(fs, &f.rewrite.opts.NoFoldBias)
	f.rewrite.define(fs)
	return fs
}

func restyleCommand() command {
	return command{
		name: "restyle", summary: "change the style of quantized weights",
		args:    []string{"--style dq|nbits [flags] IN OUT"},
		example: "in.onnx out.onnx",
		text: `Writes the quantized model IN, from any tool, to OUT with its weights in another
style. No weight is quantized again: it keeps exactly its values, or it is not
changed.`,
		flags: func() *pflag.FlagSet { return new(restyleFlags).flagSet() },
		run:   runRestyle,
	}
}

func runRestyle(ctx context.Context, c *console, args []string) error {
	var f restyleFlags
	in, out, err := f.rewrite.parse("restyle", f.flagSet(), args)
	if err != nil {
		return err
	}
	if f.rewrite.help {
		return c.help("restyle")
	}
	if f.style == "" {
		return usagef("--style is required: dq or nbits")
	}
	return f.rewrite.run(c, "restyled", func() (*restyle.Report, error) { return restyle.Restyle(ctx, in, out, f.style, f.rewrite.opts) })
}
