package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/preset"
	"onnxquant/internal/remote"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/bench"
	"onnxquant/onnxq/checkpoint"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
)

// convertFlags are the flags of a conversion.
type convertFlags struct {
	planFlags
	calibFlags
	reportFlags
	gateFlags
	weightsFrom []string
	read        []*checkpoint.Weights
	lacked      []string // weights that --weights-from does not have
	names       string
	imatrix     string
	auto        int64 // bytes; 0: not asked for
	page        string
	origin      string // of a remote model
	target      *remote.Target
	slowdown    float64 // 0: not asked for
	speed       string  // as measured

	preset string
	link   bool

	dryRun, version, noProvenance bool
	opsGiven, algorithmGiven      bool
}

func (f *convertFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	f.planFlags.define(fs)
	o := &f.opts
	fs.StringArrayVar(&f.weightsFrom, "weights-from", nil,
		"read weights from `FILE` where it has them: GGUF,\nsafetensors, or a folder of these; may be repeated")
	fs.StringVar(&f.names, "names", "",
		"JSON `FILE` that maps names of weights to names in the files\nof --weights-from and --imatrix")
	fs.StringVar(&f.imatrix, "imatrix", "",
		imatrixUsage+",\nfor the formats of ggml")
	f.calibFlags.define(fs)
	f.levels.define(fs, o)
	fs.Var(cli.ByteCount{Value: &f.auto}, "auto",
		"choose a format for each weight: the least error with an\noutput of at most this size, as onnxquant analyze does,\nwith --calib by what the outputs lose; --algorithm is then\nbest by default")
	defineExternalData(fs, &o.ExternalData, &o.ExternalDataName, &o.ShardSize)
	defineResources(fs, &o.Threads, &o.Memory)
	fs.BoolVar(&o.AllowFallback, "allow-fallback", false,
		"go on where a setting of this command line does not fit:\nby default that fails if it concerns more than a quarter of\nthe weights, or if memory lacks")
	fs.BoolVar(&o.Strict, "strict", false,
		"fail if a selected weight cannot be quantized")
	fs.Var(cli.Share{Value: &o.MinCoverage}, "min-coverage",
		"fail if less than this share of the bytes of float tensors\nwould be quantized, such as 95%")
	defineNoVerify(fs, &o.NoVerify)
	definePage(fs, &f.page)
	fs.Var(cli.Limit{Value: &f.slowdown, Kind: "X"}, "max-slowdown",
		"fail, without OUT, if a run of OUT in ONNX Runtime takes more\nthan X times the time of a run of IN, such as 1.1; with one\nthread, or with --threads")
	f.gateFlags.define(fs)
	defineNoProvenance(fs, &f.noProvenance)
	fs.Var(specvalue.Preset{To: &f.preset}, "preset",
		"write to the folder OUT, for each model of the folder IN, the\nset of outputs of the preset `NAME`, or of a preset in a file:\n"+cli.OneOf(preset.Names()))
	fs.BoolVar(&f.link, "link", false,
		"for folders: link files that are not converted, instead of\ncopying them")
	fs.BoolVarP(&f.dryRun, "dry-run", "n", false, dryRunUsage)
	fs.BoolVarP(&f.version, "version", "V", false, "print the version")
	f.defineForce(fs)
	f.reportFlags.define(fs, "print the report, or with --dry-run the plan, as JSON", "print a line for each tensor")
	return fs
}

func conversion() cli.Command {
	return cli.Command{
		Summary: "quantize the weights of an ONNX model",
		Args:    []string{"[flags] IN OUT", "COMMAND", "help COMMAND", "help FLAG"},
		Example: "in.onnx out.onnx",
		Text: `Quantizes the weights of the ONNX model IN and writes the result to OUT. IN is never
changed. OUT is written completely or not at all. Long flags may have one dash or two.

IN may be a folder: OUT becomes the same folder with its models converted. --preset writes
what a runtime or a hub expects of each model. IN may be hf://OWNER/REPOSITORY/PATH, a file
of the Hugging Face hub, or https://HOST/PATH. IN and OUT may be objects, s3://BUCKET/KEY,
gs://BUCKET/KEY or azblob://CONTAINER/KEY, with the program onnxquant-cloud.

Examples:

  onnxquant -bits 4 -block 128 in.onnx out.onnx
        INT4 codes, one scale for every 128 weights
  onnxquant -bits 8 -block -1 in.onnx out.onnx
        INT8 codes, one scale per channel
  onnxquant --zero-point --exclude 'lm_head*' in.onnx out.onnx
        UINT4 codes with zero points; keep lm_head* in float
  onnxquant --preset transformers.js folder web-folder
        a file for each dtype of transformers.js
  onnxquant --dry-run in.onnx
        show the plan for every tensor, with reasons`,
		After: `Names of formats, operators and the like are understood in any case. Globs: * matches any
characters, also / and .; ? matches one character; [a-z] matches one of a class; \ makes the
next character literal.

Exit status: 0 success; 1 the input or the conversion failed; 2 wrong usage, or a setting
that does not fit; 4 --gate refused OUT; 130 interrupted, 143 terminated.`,
		ExampleFor: func(flag string) string {
			if flag == "preset" || flag == "link" {
				return "folder new-folder"
			}
			return ""
		},
		Flags: func() *pflag.FlagSet { return new(convertFlags).flagSet() },
		Run:   runConvert,
	}
}

func runConvert(ctx context.Context, c *cli.Console, args []string) (err error) {
	var f convertFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	switch {
	case f.help:
		c.App.PrintShortHelp(c.Stdout)
		return nil
	case f.version:
		c.PrintVersion()
		return nil
	}
	if err := noPage(fs.Args(), "report"); err != nil {
		return err
	}
	in, out, err := cli.InOut(fs, f.dryRun)
	if err != nil {
		return err
	}
	if err := remote.CheckOut(out); err != nil {
		return cli.Usagef("%v", err)
	}
	if remote.IsObject(out) {
		if f.isFolderJob(in) {
			return cli.Usagef("%s: outputs of a folder do not become objects; onnxquant batch writes these", cli.Printable(out))
		}
		var remove func(error)
		if out, remove, err = f.stage(ctx, c, in, out); err != nil {
			return err
		}
		defer func() {
			remove(err)
			err = unkept(err)
		}()
	}
	if remote.Is(in) {
		var remove func()
		if in, remove, err = f.fetch(ctx, c, in, out); err != nil {
			return err
		}
		defer func() { // after other errors, the next attempt goes on with what is there
			if err == nil || errors.Is(err, cli.ErrPoor) || f.dryRun {
				remove()
			}
		}()
	}
	if f.isFolderJob(in) {
		return f.ofFolder(ctx, c, args, in, out)
	}
	return f.ofModel(ctx, c, fs, args, in, out)
}

// ofFolder checks the flags and converts a folder.
func (f *convertFlags) ofFolder(ctx context.Context, c *cli.Console, args []string, in, out string) (err error) {
	switch {
	case f.auto > 0:
		return cli.Usagef("--auto is for one model, not for a folder")
	case f.levels.auto:
		return cli.Usagef("--accuracy-level auto is for one model; onnxquant batch has it for the models of a folder")
	case f.slowdown > 0:
		return cli.Usagef("--max-slowdown is for one model, not for a folder")
	case f.store != "":
		return cli.Usagef("--calib-store is for one model, not for a folder")
	case f.gate != "" || f.attest != "":
		return cli.Usagef("--gate and --attest are for one model; onnxquant batch has them for the models of a folder")
	case f.resume && !(sensitivity.Fits(f.opts) && len(f.paths) > 0):
		return cli.Usagef("--resume of a folder is for --activations static or dynamic with --calib: other conversions of folders keep nothing")
	}
	if err := f.check(); err != nil {
		return err
	}
	if f.opts.Names, f.opts.Importance, err = loadNames(f.names, f.imatrix); err != nil {
		return err
	}
	if err := f.checkPaths(); err != nil {
		return err
	}
	return f.runFolder(ctx, c, args, in, out)
}

// ofModel checks the flags and converts one model.
func (f *convertFlags) ofModel(ctx context.Context, c *cli.Console, fs *pflag.FlagSet, args []string, in, out string) (err error) {
	if err := f.note(in); err != nil {
		return err
	}
	if err := f.complete(fs, in, out); err != nil {
		return err
	}
	if err := onnxq.CheckDims(in, f.opts.FixDims); err != nil {
		return err
	}
	if err := f.calibFlags.check(ctx); err != nil {
		return err
	}
	f.opsGiven, f.algorithmGiven = fs.Changed("ops"), fs.Changed("algorithm")
	f.opts.Provenance = step("convert", fs, f.noProvenance)
	start := time.Now()
	scales, err := f.cacheScales(ctx)
	if err != nil {
		return err
	}
	if f.auto > 0 {
		if err := f.mix(ctx, c, in, out); err != nil {
			return err
		}
	}
	if sensitivity.Fits(f.opts) && f.data != nil {
		state := stateOf(out)
		if f.dryRun {
			state = ""
		}
		if err := f.fitActivations(ctx, c, in, out, state); err != nil {
			return err
		}
		defer f.fit.Close()
	}
	f.opts.CacheScales = scales
	if f.dryRun {
		return f.plan(ctx, c, in, out)
	}
	if err := checkPage(f.page); err != nil {
		return err
	}
	if err := f.gateFlags.check(); err != nil {
		return err
	}
	return f.convert(ctx, c, start, fs, in, out, args)
}

// complete checks the flags of one model, and completes its options.
func (f *convertFlags) complete(fs *pflag.FlagSet, in, out string) (err error) {
	if f.link {
		return cli.Usagef("--link is for folders: %s is one model", cli.Printable(in))
	}
	if strings.EqualFold(filepath.Ext(out), ".gguf") {
		return cli.Usagef("%s: a conversion writes ONNX files; to write a GGUF file, use onnxquant gguf IN OUT", cli.Printable(out))
	}
	if err := cli.WantFile(in, out, ".onnx"); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := f.calibFlags.finish(fs, &f.opts, in); err != nil {
		return err
	}
	if err := f.finishAuto(fs); err != nil {
		return err
	}
	if err := f.floatType(fs); err != nil {
		return err
	}
	f.imply(&f.opts, f.auto > 0)
	f.onlyCaches(&f.opts)
	if err := f.planFlags.finish(fs); err != nil {
		return err
	}
	if f.opts.Names, f.opts.Importance, err = loadNames(f.names, f.imatrix); err != nil {
		return err
	}
	return nil
}

func (f *convertFlags) check() error {
	if f.opts.ExternalData == spec.ExternalNever && (f.opts.ExternalDataName != "" || f.opts.ShardSize != 0) {
		return cli.Usagef("--external-data never has no file for --external-data-name and --shard-size")
	}
	if f.names != "" && len(f.weightsFrom) == 0 && f.imatrix == "" {
		return cli.Usagef("--names needs --weights-from or --imatrix")
	}
	if f.page != "" && f.dryRun {
		return cli.Usagef("--report is about a finished conversion; --dry-run makes none")
	}
	if f.share.N > 0 && (f.json || f.page != "" || f.gate != "" || f.attest != "") {
		return cli.Usagef("--calib-shard writes no OUT, so nothing for --json, --report, --gate and --attest")
	}
	if f.slowdown > 0 && f.cache != "" {
		return cli.Usagef("--max-slowdown runs IN and OUT on the same inputs; with --kv-cache, these have other types")
	}
	if f.attest != "" && f.dryRun {
		return cli.Usagef("--attest is about a finished conversion; --dry-run makes none")
	}
	return f.reportFlags.check()
}

// plan prints the plan.
func (f *convertFlags) plan(ctx context.Context, c *cli.Console, in, out string) error {
	m, p, err := f.open(c, in)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := f.calibFlags.measure(ctx, p); err != nil {
		return err
	}
	if out != "" {
		if p.OutBytes, err = p.OutputSize(out); err != nil {
			return err
		}
		if err := p.CheckOutput(out); err != nil {
			return err
		}
	}
	c.WarnAll(append(p.Warnings, summary.LeftExperts(p)...))
	if f.json {
		return c.JSON(p)
	}
	summary.Plan(c.Stdout, p, append(cli.Facts(f.fit.Summary()), f.impliedFacts()...))
	return nil
}

// convert converts a model. The summary counts the time since start.
func (f *convertFlags) convert(ctx context.Context, c *cli.Console, start time.Time, fs *pflag.FlagSet, in, out string, args []string) (err error) {
	if err := f.checkForce(out, modelfile.KindONNX, append(f.weightsFrom, in)...); err != nil {
		return err
	}
	bar := cli.NewProgress(c, f.quiet)
	if f.slowdown > 0 {
		measured := bench.Options{ORTLibrary: f.library, Threads: f.opts.Threads, Progress: bar.Share}
		f.opts.Try, err = bench.Limit(ctx, in, f.slowdown, measured, func(text string) { f.speed = text })
		if err != nil {
			return err
		}
	}
	f.opts.Try = f.try(in, f.opts.Try)
	f.opts.Progress = bar.Update
	f.opts.Calibrating, f.opts.Tuning, f.opts.Notify = bar.Calibrating, bar.Tuning, bar.Warn
	if err := f.prepareLevels(ctx, in, bar); err != nil {
		return err
	}
	defer f.levels.close()
	m, p, err := f.open(c, in)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := f.checkSwapped(p, in, out); err != nil {
		return err
	}
	if err := f.calibFlags.open(ctx, p); err != nil {
		return err
	}
	if err := f.calibFlags.warn(c); err != nil {
		return err
	}
	if !f.quiet || f.json {
		p.MeasureCalibration(ctx)
	}
	if !f.quiet {
		cli.PrintFacts(c.Stderr, slices.Concat(cli.Facts(f.fit.Summary()), f.impliedFacts(), summary.Cost(p.CalibrationCost)))
		f.warnSlow(c)
	}
	bar.Begin()
	if f.share.N > 0 {
		defer bar.Clear()
		return f.findShare(ctx, c, p, out)
	}
	made, err := p.Convert(ctx, out)
	bar.Clear()
	if err != nil {
		return f.refused(c, f.faster(f.resumable(err)))
	}
	f.fit.Done()
	told, err := f.published(ctx, c, made)
	if err != nil {
		return err
	}
	c.WarnAll(append(f.calibFlags.untold(made.Plan.Warnings), summary.LeftExperts(made.Plan)...))
	if f.verbose {
		summary.Tensors(c.Stderr, made)
	}
	if !f.quiet {
		cli.PrintFacts(c.Stderr, cli.Facts(sensitivity.LevelFacts(made.Plan.Levels)))
		summary.Conversion(c.Stderr, told, time.Since(start), f.speed, f.hints(m, made.Plan))
	}
	if f.judged != nil && !f.quiet {
		cli.PrintFacts(c.Stderr, []cli.Fact{{Label: "verdict", Text: fmt.Sprintf("%s: %s", f.judged.Verdict, strings.Join(f.judged.Reasons, "; "))}})
	}
	if err := f.statement(ctx, fs, made); err != nil {
		return err
	}
	if f.json {
		err = c.JSON(conversionReport{told, f.judged, f.lacked})
	}
	if err == nil && f.page != "" {
		err = f.report(ctx, c, in, made, args)
	}
	return err
}

// faster says what to do about an output that is too slow.
func (f *convertFlags) faster(err error) error {
	switch {
	case !errors.Is(err, bench.ErrSlower):
		return err
	case f.opts.Target != spec.ORT || f.opts.Smallest:
		return fmt.Errorf("%w; --target ort without --smallest chooses forms that are as fast as floats", err)
	}
	return fmt.Errorf("%w; --exclude keeps weights in float", err)
}

// checkSwapped refuses, without --force, to replace a float model by a copy of a quantized one.
func (f *convertFlags) checkSwapped(p *onnxq.Plan, in, out string) error {
	if f.force || !p.ReplacesFloat(out) {
		return nil
	}
	return fmt.Errorf("%s: its weights are quantized already, and %s is a float model: are IN and OUT swapped? --force replaces it by a copy", cli.Printable(in), cli.Printable(out))
}

// report writes the page about a conversion.
func (f *convertFlags) report(ctx context.Context, c *cli.Console, in string, made *onnxq.Report, args []string) error {
	bar := cli.NewProgress(c, f.quiet)
	opts := reportOptions(args)
	opts.Plan, opts.Target, opts.Threads, opts.Memory = made.Plan, f.opts.Target, f.opts.Threads, f.opts.Memory
	opts.Verify.Progress = bar.Share
	r, err := report.Models(ctx, in, []string{made.Output}, opts)
	bar.Clear()
	if err != nil {
		return err
	}
	return writePage(f.page, r)
}

// open opens the model, reads the weights of --weights-from, and plans.
func (f *convertFlags) open(c *cli.Console, in string) (*onnxq.Model, *onnxq.Plan, error) {
	m, err := onnxq.Open(in)
	if err != nil {
		return nil, nil, err
	}
	if err = f.readWeights(c, m); err == nil {
		var p *onnxq.Plan
		if p, err = m.Plan(f.opts); err == nil {
			f.fit.Note(p)
			f.levels.note(p)
			if err = f.missing(c, p); err == nil {
				return m, p, nil
			}
		}
	}
	m.Close()
	return nil, nil, withHint(err)
}

// missing warns of weights that --weights-from does not have. With --strict they are an error.
func (f *convertFlags) missing(c *cli.Console, p *onnxq.Plan) error {
	if f.lacked = checkpoint.Missing(p, f.read, f.opts.Names); len(f.read) == 0 || len(f.lacked) == 0 {
		f.lacked = nil
		return nil
	}
	text := fmt.Sprintf("--weights-from lacks %d of IN's weights, which keep their values, for example %s", len(f.lacked), cli.Printable(f.lacked[0]))
	if f.opts.Strict {
		return errors.New(text + "; --names tells their names in the files, or leaves them out with null")
	}
	c.Warn(text)
	return nil
}

// readWeights replaces weights of the model by those of other files.
func (f *convertFlags) readWeights(c *cli.Console, m *onnxq.Model) error {
	for _, path := range f.weightsFrom {
		from, err := checkpoint.Read(m, path, f.opts.Names)
		if err != nil {
			return err
		}
		f.read = append(f.read, from)
		if n := len(from.Unused); n > 0 {
			c.Warn(fmt.Sprintf("%s: %d of its %d tensors are not in the model, for example %s", path, n, n+from.Used, from.Unused[0]))
		}
		if !f.quiet {
			c.Line("", fmt.Sprintf("%d of the model's %d float tensors were read from %s", len(from.Tensors), from.Of, path))
			for _, kind := range cli.Counts(from.Coded) {
				c.Line("", "weights in codes: "+kind)
			}
		}
		for _, why := range cli.Counts(from.Decoded) {
			c.Warn("weights in codes are decoded, and quantized anew: " + why)
		}
	}
	return nil
}
