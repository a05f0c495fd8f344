package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
)

// convertFlags are the flags of a conversion.
type convertFlags struct {
	opts          onnxq.Options
	precisionInfo string
	weightsFrom   []string
	names         string

	dryRun, json   bool
	quiet, verbose bool
	version, help  bool
}

func (f *convertFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	o := &f.opts
	fs.Var(number[int]{&o.Bits, func(n int) bool { return n == 2 || n == 4 || n == 8 }, "2, 4 or 8"}, "bits",
		"bits of a code: 2, 4 or 8 (default 4)")
	fs.Var(number[int]{&o.Block, func(n int) bool { return n >= 2 || n == onnxq.PerChannel }, "at least 2, or -1 for one scale per channel"}, "block",
		"weights along the reduction axis that share a scale,\nat least 2; -1: one scale per channel (default 128; 32 for\n8 bits; mxfp and nvfp4 have their own)")
	fs.Var(choice[onnxq.Format]{&o.Format, codedFormats(), "FORMAT"}, "format",
		"what weights become: "+oneOf(codedFormats())+"\n(default: intN, with --zero-point uintN, N from --bits)")
	fs.BoolVar(&o.ZeroPoint, "zero-point", false,
		"asymmetric codes: each block has a zero point")
	fs.Var(choice[string]{&o.Algorithm, onnxq.KnownAlgorithms, "NAME"}, "algorithm",
		"how codes and scales are found: rtn, round to nearest\n(default rtn)")
	fs.Var(choice[onnxq.ScaleRule]{&o.ScaleRule, []onnxq.ScaleRule{onnxq.RuleOCP, onnxq.RuleCeil}, "NAME"}, "scale-rule",
		"how mxfp4 and mxfp8 round scales to powers of two: ocp or\nceil (default ocp for 4 bits, ceil for 8)")
	fs.Var(choice[onnxq.Target]{&o.Target, onnxq.Targets(), "NAME"}, "target",
		"what shall run OUT, so that it gets forms and blocks that\nthis executes well: portable, ort, tensorrt or openvino\n(default portable: whatever has the standard's operators)")
	fs.Var(blockRange{&o.Range}, "range",
		"what integer codes cover of a block: minmax, all; mse, what\ngives the least squared error; or percentile:P\n(default minmax)")
	fs.Var(choice[onnxq.Style]{&o.Style, []onnxq.Style{onnxq.DQ, onnxq.QDQ, onnxq.NBits}, "NAME"}, "style",
		"how OUT holds weights: dq, codes behind DequantizeLinear;\nqdq, floats behind QuantizeLinear and DequantizeLinear;\nnbits, codes of MatMulNBits and GatherBlockQuantized\n(default dq)")
	fs.Var(choices{&o.Ops, slices.Concat(onnxq.KnownOps, []string{"all"})}, "ops",
		"operators whose weights are quantized, of\n"+wrapped(onnxq.KnownOps, 54)+",\nor all (default MatMul,Gemm)")
	fs.StringArrayVar(&o.Include, "include", nil,
		"quantize only what has a weight or node name that\nmatches `GLOB`; may be repeated")
	fs.StringArrayVar(&o.Exclude, "exclude", nil,
		"leave what has a weight or node name that matches\n`GLOB` in float; may be repeated")
	fs.Var(notNegative(&o.MinElements), "min-elements",
		"leave weights of fewer elements in float")
	fs.StringVar(&f.precisionInfo, "precision-info", "",
		"settings for single weights, a JSON `FILE`")
	fs.StringArrayVar(&f.weightsFrom, "weights-from", nil,
		"take weights that have a name in the GGUF `FILE` from\nthere; may be repeated")
	fs.StringVar(&f.names, "names", "",
		"what weights are called in GGUF files, a JSON `FILE`")
	fs.Var(choice[onnxq.ExternalData]{&o.ExternalData, []onnxq.ExternalData{onnxq.ExternalAuto, onnxq.ExternalAlways, onnxq.ExternalNever}, "WHEN"}, "external-data",
		"when tensors go to OUT.data: always, never, or auto:\nif OUT would pass 2 GiB (default auto)")
	fs.Var(notNegative(&o.Threads), "threads",
		"threads to use (default: one for each CPU)")
	fs.Var(byteCount{&o.Memory}, "memory",
		"buffers for tensors, all threads together, such as 32MiB\n(default 64MiB)")
	fs.BoolVar(&o.Strict, "strict", false,
		"fail if a selected weight cannot be quantized")
	fs.Var(percentage{&o.MinCoverage}, "min-coverage",
		"fail if a smaller share of the bytes of float tensors\nwould be quantized, such as 95%")
	fs.BoolVar(&o.NoVerify, "no-verify", false,
		"do not read OUT back to check it")
	fs.BoolVar(&f.dryRun, "dry-run", false,
		"write nothing; print what would become of each tensor")
	fs.BoolVar(&f.json, "json", false,
		"print the report, or with --dry-run the plan, as JSON")
	fs.BoolVar(&f.quiet, "quiet", false,
		"print nothing but errors, warnings and what was asked for")
	fs.BoolVar(&f.verbose, "verbose", false,
		"list what became of each tensor")
	fs.BoolVar(&f.version, "version", false,
		"print the version")
	fs.BoolVarP(&f.help, "help", "h", false,
		"print this help")
	return fs
}

// codedFormats are the formats that a whole model can have.
func codedFormats() []onnxq.Format {
	var names []onnxq.Format
	for _, f := range onnxq.Formats() {
		if f != onnxq.Float {
			names = append(names, f)
		}
	}
	return names
}

func runConvert(ctx context.Context, c *console, args []string) error {
	var f convertFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	switch {
	case f.help:
		printHelp(c)
		return nil
	case f.version:
		printVersion(c)
		return nil
	}
	in, out, err := f.files(fs.Args())
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if fs.Changed("precision-info") {
		if f.opts.Precision, err = onnxq.LoadPrecision(f.precisionInfo); err != nil {
			return err
		}
	}
	if f.dryRun {
		return f.plan(c, in, out)
	}
	return f.convert(ctx, c, in, out)
}

// files takes the names of input and output from the arguments.
func (f *convertFlags) files(args []string) (in, out string, err error) {
	switch {
	case slices.Contains(args, ""):
		return "", "", usagef("a file's name is empty")
	case len(args) == 0:
		return "", "", usagef("no input is named")
	case len(args) == 1 && f.dryRun:
		return args[0], "", nil
	case len(args) == 1:
		return "", "", usagef("no output is named after %s", args[0])
	case len(args) > 2:
		return "", "", usagef("one input and one output, but %d files are named: what is %s?", len(args), args[2])
	}
	return args[0], args[1], nil
}

// check finds flags that contradict each other.
func (f *convertFlags) check() error {
	if f.quiet && f.verbose {
		return usagef("--quiet and --verbose exclude each other")
	}
	if f.names != "" && len(f.weightsFrom) == 0 {
		return usagef("--names is for --weights-from")
	}
	format := f.opts.Format
	if format != "" && f.opts.Bits != 0 && f.opts.Bits != format.Bits() {
		return usagef("--format %s has %d bits, not the %d of --bits", format, format.Bits(), f.opts.Bits)
	}
	return nil
}

// plan prints what a conversion would do.
func (f *convertFlags) plan(c *console, in, out string) error {
	m, p, err := f.open(c, in)
	if err != nil {
		return err
	}
	defer m.Close()
	if out != "" {
		if err := p.SetOutput(out); err != nil {
			return err
		}
		if err := p.CheckOutput(out); err != nil {
			return err
		}
	}
	f.warnings(c, p)
	if f.json {
		return c.json(p)
	}
	printPlan(c.stdout, p)
	return nil
}

func (f *convertFlags) convert(ctx context.Context, c *console, in, out string) error {
	start := time.Now()
	bar := newProgress(c, f.quiet)
	f.opts.Progress = bar.update
	m, p, err := f.open(c, in)
	if err != nil {
		return err
	}
	defer m.Close()
	report, err := p.Convert(ctx, out)
	bar.clear()
	if err != nil {
		return err
	}
	f.warnings(c, report.Plan)
	if f.verbose {
		printTensors(c.stderr, report)
	}
	if !f.quiet {
		printSummary(c.stderr, report, time.Since(start))
	}
	if f.json {
		return c.json(report)
	}
	return nil
}

// open opens the model, with the weights it is to have, and plans.
func (f *convertFlags) open(c *console, in string) (*onnxq.Model, *onnxq.Plan, error) {
	m, err := onnxq.Open(in)
	if err != nil {
		return nil, nil, err
	}
	if err = f.readWeights(c, m); err == nil {
		var p *onnxq.Plan
		if p, err = m.Plan(f.opts); err == nil {
			return m, p, nil
		}
	}
	m.Close()
	return nil, nil, err
}

// readWeights puts the weights of GGUF files into the model.
func (f *convertFlags) readWeights(c *console, m *onnxq.Model) error {
	var names *onnxq.Names
	if f.names != "" {
		var err error
		if names, err = onnxq.LoadNames(f.names); err != nil {
			return err
		}
	}
	for _, path := range f.weightsFrom {
		from, err := m.ReadWeights(path, names)
		if err != nil {
			return err
		}
		if n := len(from.Unused); n > 0 {
			c.warn(fmt.Sprintf("%s: %d of its %d tensors are not in the model, among them %s", path, n, n+from.Used, from.Unused[0]))
		}
		if !f.quiet {
			c.line("", fmt.Sprintf("%d of the model's %d float tensors come from %s", len(from.Tensors), from.Of, path))
		}
	}
	return nil
}

// warnings are printed even if all else is to be quiet: what they say may mean
// that the output is not what was wanted.
func (f *convertFlags) warnings(c *console, p *onnxq.Plan) {
	for _, w := range p.Warnings {
		c.warn(w)
	}
}
