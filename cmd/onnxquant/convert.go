package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/rules"
	"onnxquant/onnxq/spec"
)

// convertFlags are the flags of a conversion.
type convertFlags struct {
	planFlags
	weightsFrom []string
	names       string
	importance  string

	dryRun, json   bool
	quiet, verbose bool
	version, help  bool
}

func (f *convertFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	f.planFlags.define(fs)
	o := &f.opts
	fs.StringArrayVar(&f.weightsFrom, "weights-from", nil,
		"take weights that have a name in the GGUF `FILE` from\nthere; may be repeated")
	fs.StringVar(&f.names, "names", "",
		"what weights are called in GGUF files, and for --imatrix,\na JSON `FILE`")
	fs.StringVar(&f.importance, "imatrix", "",
		"how much the columns of weights count, for the encodings\nof ggml: a `FILE` of llama-imatrix")
	fs.Var(choice[spec.ExternalData]{&o.ExternalData, []spec.ExternalData{spec.ExternalAuto, spec.ExternalAlways, spec.ExternalNever}, "WHEN"}, "external-data",
		"when tensors go to OUT.data: always, never, or auto:\nif OUT would pass 2 GiB (default auto)")
	fs.Var(notNegative(&o.Threads), "threads",
		"threads to use (default: one for each CPU)")
	fs.Var(byteCount{&o.Memory}, "memory",
		"buffers for tensors, all threads together, such as 32MiB\n(default 64MiB)")
	fs.BoolVar(&o.Strict, "strict", false,
		"fail if a selected weight cannot be quantized")
	fs.Var(share{&o.MinCoverage}, "min-coverage",
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
	if strings.EqualFold(filepath.Ext(out), ".gguf") {
		return usagef("%s: a conversion writes ONNX files; GGUF files come from onnxquant gguf IN OUT", printable(out))
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := f.planFlags.finish(fs); err != nil {
		return err
	}
	if err := f.load(); err != nil {
		return err
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
	case slices.Contains(args, "-"):
		return "", "", usagef("models are files, not standard input or output; a file of that name is written ./-")
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
	if f.names != "" && len(f.weightsFrom) == 0 && f.importance == "" {
		return usagef("--names is for --weights-from and --imatrix")
	}
	return nil
}

// load reads the files that tell of weights.
func (f *convertFlags) load() (err error) {
	if f.names != "" {
		if f.opts.Names, err = rules.LoadNames(f.names); err != nil {
			return err
		}
	}
	if f.importance != "" {
		f.opts.Importance, err = rules.LoadImportance(f.importance)
	}
	return err
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
	for _, path := range f.weightsFrom {
		from, err := m.ReadWeights(path, f.opts.Names)
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
