package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/internal/remote"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/quality"
	"onnxquant/spec"
)

type analyzeFlags struct {
	planFlags
	candidates []string
	maxError   float64
	maxSize    string
	emit       string
	run        calibrate.Options // with data
	page       string

	suite, json, quiet, verbose, help bool
}

// sharedFlags are the flags of a plan that analyze has too. The other settings come from --candidates.
var sharedFlags = []string{"algorithm", "range", "scale-rule", "scale-type", "target", "style", "smallest", "ops", "include", "exclude", "min-elements"}

func (f *analyzeFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	fs.StringSliceVar(&f.candidates, "candidates", nil,
		"formats to try, a `LIST` of FORMAT[:BLOCK][:zp][:TYPEscale],\nsuch as int4:32:zp,int4:16:uint8scale,int8:channel,nf4\n(default: int4, q4_0, q4_k and int8 in several ways; for\nconvolutions only int8)")
	fs.Var(cli.Limit{Value: &f.maxError, Kind: "E"}, "max-error",
		"find the smallest model with an error of at most E\n(default 0.1 without --max-size)")
	fs.StringVar(&f.maxSize, "max-size", "",
		"find the model with the least error of at most `SIZE` bytes")
	fs.Var(specvalue.DataPaths{To: &f.run.Data}, "calib",
		"measure what each format of each weight does to the outputs\nof MODEL, on `DATA` as calibrate --data takes them, or self;\nwithout --max-size nothing is recommended; may be repeated")
	cli.AlsoData(fs, "calib")
	defineData(fs, &f.run, sensitivity.DefaultSamples)
	fs.StringVar(&f.emit, "emit", "", "write the recommendation to `FILE`, for --precision-info")
	fs.StringVar(&f.page, "report", "", "write a page about the analysis to `FILE`")
	fs.BoolVar(&f.suite, "suite", false, "compare bits and granularities on generated weights;\ntakes no MODEL")
	all := cli.NewFlagSet()
	f.planFlags.define(all)
	for _, name := range sharedFlags {
		fs.AddFlag(all.Lookup(name))
	}
	defineResources(fs, &f.opts.Threads, &f.opts.Memory)
	fs.BoolVar(&f.json, "json", false, "print the analysis as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print each weight with all formats, also if there are many")
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

func analyzeCommand() cli.Command {
	return cli.Command{
		Name: "analyze", Summary: "compare formats for each weight, and recommend one",
		Args:    []string{"[flags] MODEL"},
		Example: "model.onnx", ExampleFor: func(flag string) string { return map[string]string{"suite": " "}[flag] },
		Text: `Measures the size and error of formats for each weight of MODEL, and recommends one per
weight. The recommendation makes the model the smallest within --max-error, the most
exact within --max-size, or the smallest within both. The error of a weight is its root
mean square error divided by its root mean square: 0.1 is an SQNR of 20 dB.

With --calib, the error of a choice is what it alone does to the outputs: the mean
Kullback-Leibler divergence, or the share of noise where an output is no distribution.
--algorithm is that of the conversion.`,
		Flags: func() *pflag.FlagSet { return new(analyzeFlags).flagSet() },
		Run:   runAnalyze,
	}
}

func runAnalyze(ctx context.Context, c *cli.Console, args []string) error {
	var f analyzeFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("analyze")
	}
	if f.suite {
		if fs.NArg() > 0 {
			return cli.Usagef("--suite generates its weights and takes no model")
		}
		return f.printSuite(c)
	}
	if err := noPage(fs.Args(), "report"); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return cli.WrongCount("analyze takes one model", fs)
	}
	opts, err := f.options(fs)
	if err != nil {
		return err
	}
	f.record(fs, &opts)
	if err := cmp.Or(checkEmit(f.emit), checkPage(f.page)); err != nil {
		return err
	}
	paths, remove, err := remote.Local(ctx, fs.Args(), false)
	if err != nil {
		return err
	}
	defer remove()
	m, err := onnxq.Open(paths[0])
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := analysis{paths[0], m, opts, f.run, true}.run(ctx, c, f.quiet)
	if err != nil {
		return err
	}
	if f.emit != "" {
		if err := emit(f.emit, a.Precision); err != nil {
			return err
		}
	}
	if f.page != "" {
		r, err := report.Analysis(ctx, paths[0], m, a, reportOptions(args, "analyze"))
		if err != nil {
			return err
		}
		r.In.Path = remote.Plain(fs.Arg(0))
		if err := writePage(f.page, r); err != nil {
			return err
		}
	}
	if f.json {
		return c.JSON(a)
	}
	summary.Analysis(c.Stdout, a, f.verbose)
	return nil
}

// analysis analyzes the model at path. With data, it measures the damage to the outputs.
type analysis struct {
	path  string
	model *onnxq.Model
	opts  analyze.Options
	data  calibrate.Options
	warn  bool // of data that may mislead
}

func (a analysis) run(ctx context.Context, c *cli.Console, quiet bool) (*analyze.Analysis, error) {
	bar := cli.NewProgress(c, quiet)
	defer bar.Clear()
	a.opts.Progress = bar.Update
	if len(a.data.Data) > 0 {
		a.opts.Progress, a.data.Progress = nil, bar.Step
		s, err := sensitivity.Open(ctx, a.path, a.data)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if a.warn {
			bar.Clear()
			c.WarnAll(s.Warnings())
		}
		a.opts.Damage = s
		if !quiet {
			a.opts.Damage = &told{Sensitivity: s, console: c, bar: bar}
		}
	}
	bar.Begin()
	found, err := analyze.Model(ctx, a.model, a.opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.path, err)
	}
	return found, nil
}

// told prints the expected duration before the first measurement.
type told struct {
	*sensitivity.Sensitivity
	console *cli.Console
	bar     *cli.Progress
	once    sync.Once
}

func (t *told) Expect(n int) {
	t.Sensitivity.Expect(n)
	t.once.Do(func() {
		t.bar.Clear()
		samples, taken := t.Samples()
		cli.PrintFacts(t.console.Stderr, []cli.Fact{{Label: "weighing", Text: fmt.Sprintf("%s over %s, which take about %.0f s",
			english.Plural(n, "run", ""), english.Plural(samples, "sample", ""), math.Ceil(float64(n)*taken.Seconds()))}})
		t.bar.Begin()
	})
}

func (f *analyzeFlags) options(fs *pflag.FlagSet) (analyze.Options, error) {
	opts := analyze.Options{Options: f.opts, MaxError: f.maxError}
	if fs.Changed("max-error") && f.maxError <= 0 {
		return opts, cli.Usagef("--max-error %v: want more than 0", f.maxError)
	}
	check := f.opts
	if len(f.run.Data) > 0 && check.Algorithm.NeedsData() {
		check.Algorithm = spec.Best // needs no data to be checked
	}
	if err := check.Check(); err != nil {
		return opts, cli.Usagef("%v", err)
	}
	if len(f.run.Data) == 0 {
		for _, name := range []string{"samples", "length", "seed", "engine", "ort-lib"} {
			if fs.Changed(name) {
				return opts, cli.Usagef("--%s needs --calib", name)
			}
		}
	} else if f.maxError > 0 {
		return opts, cli.Usagef("--calib finds the best model of a size: give --max-size, such as --max-size 100MiB, without --max-error")
	} else if f.maxSize == "" && (f.emit != "" || f.page != "") {
		return opts, cli.Usagef("--calib recommends formats for a size: give --max-size, such as --max-size 100MiB")
	}
	if f.maxSize != "" {
		if err := (cli.ByteCount{Value: &opts.MaxSize}).Set(f.maxSize); err != nil {
			return opts, cli.Usagef("--max-size %q: %v", f.maxSize, err)
		}
	}
	var err error
	opts.Candidates, err = specvalue.Candidates(f.candidates)
	return opts, err
}

// record sets what the conversion with the recommendation records, because it counts for the size.
func (f *analyzeFlags) record(fs *pflag.FlagSet, o *analyze.Options) {
	kept := sharedFlags
	if len(f.run.Data) > 0 && o.Algorithm.Calibrated() {
		kept = slices.Concat(kept, []string{"calib", "samples", "ort-lib"})
		o.Calibration = calibrate.New(fs.Arg(0), f.run)
	}
	o.Provenance = step("convert", fs, false)
	o.Provenance.Options = cli.FlagsText(fs, cli.OtherFlags(fs, kept)) + " --precision-info " + filepath.Base(cmp.Or(f.emit, "mix.json"))
}

// suiteJSON is the JSON of --suite.
type suiteJSON struct {
	Results []quality.Result `json:"results"`
}

// printSuite prints the benchmark suite of package quality.
func (f *analyzeFlags) printSuite(c *cli.Console) error {
	results, err := quality.Suite(quality.SuiteWeights(1))
	if err != nil {
		return err
	}
	if f.json {
		return c.JSON(suiteJSON{results})
	}
	summary.Suite(c.Stdout, results)
	return nil
}
