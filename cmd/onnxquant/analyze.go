package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/onnxq/spec"
	"onnxquant/quality"
	"onnxquant/report"
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

// sharedFlags are the flags of a plan that analyze has, too. The others come from
// --candidates.
var sharedFlags = []string{"algorithm", "range", "scale-rule", "scale-type", "target", "style", "ops", "include", "exclude", "min-elements"}

func (f *analyzeFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	fs.StringSliceVar(&f.candidates, "candidates", nil,
		"formats to try, a `LIST` of FORMAT[:BLOCK][:zp][:TYPEscale],\nsuch as int4:32:zp,int4:16:uint8scale,int8:channel,nf4\n(default: int4, q4_0, q4_k and int8 in several ways; for\nconvolutions only int8)")
	fs.Var(limit{&f.maxError, "E"}, "max-error",
		"find the smallest model with an error of at most E\n(default 0.1 without --max-size)")
	fs.StringVar(&f.maxSize, "max-size", "",
		"find the model with the least error of at most `SIZE` bytes")
	fs.Var(dataPaths{&f.run.Data}, "calib",
		"measure what each format of each weight does to the outputs\nof MODEL, on `DATA` as calibrate --data takes them, or self;\nwithout --max-size nothing is recommended; may be repeated")
	defineData(fs, &f.run, sensitivity.DefaultSamples)
	fs.StringVar(&f.emit, "emit", "", "write the recommendation to `FILE`, for --precision-info")
	fs.StringVar(&f.page, "report", "", "write a page about the analysis to `FILE`")
	fs.BoolVar(&f.suite, "suite", false, "compare bits and granularities on generated weights;\ntakes no MODEL")
	all := newFlagSet()
	f.planFlags.define(all)
	for _, name := range sharedFlags {
		fs.AddFlag(all.Lookup(name))
	}
	defineResources(fs, &f.opts.Threads, &f.opts.Memory)
	fs.BoolVar(&f.json, "json", false, "print the analysis as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print each weight with all formats, also if there are many")
	fs.BoolVarP(&f.help, "help", "h", false, helpUsage)
	return fs
}

func analyzeCommand() command {
	return command{
		name: "analyze", summary: "compare formats for each weight, and recommend one",
		args:    []string{"[flags] MODEL"},
		example: "model.onnx",
		text: `Measures the size and error of formats for each weight of MODEL, and recommends one per
weight. The recommendation makes the model the smallest within --max-error, the most
exact within --max-size, or the smallest within both. The error of a weight is its root
mean square error divided by its root mean square: 0.1 is an SQNR of 20 dB.

With --calib, the error of a choice is what it alone does to the outputs: the mean
Kullback-Leibler divergence, or the share of noise where an output is no distribution.
--algorithm is that of the conversion.`,
		flags: func() *pflag.FlagSet { return new(analyzeFlags).flagSet() },
		run:   runAnalyze,
	}
}

func runAnalyze(ctx context.Context, c *console, args []string) error {
	var f analyzeFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.help("analyze")
	}
	if f.suite {
		if fs.NArg() > 0 {
			return usagef("--suite generates its weights and takes no model")
		}
		return f.printSuite(c)
	}
	if err := noPage(fs.Args(), "report"); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return wrongCount("analyze takes one model", fs)
	}
	opts, err := f.options(fs)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkEmit(f.emit), checkPage(f.page)); err != nil {
		return err
	}
	m, err := onnxq.Open(fs.Arg(0))
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := analysis{fs.Arg(0), m, opts, f.run, true}.run(ctx, c, f.quiet)
	if err != nil {
		return err
	}
	if f.emit != "" {
		if err := emit(f.emit, a.Precision); err != nil {
			return err
		}
	}
	if f.page != "" {
		r, err := report.Analysis(ctx, fs.Arg(0), m, a, reportOptions(args, "analyze"))
		if err != nil {
			return err
		}
		if err := writePage(f.page, r); err != nil {
			return err
		}
	}
	if f.json {
		return c.json(a)
	}
	printAnalysis(c.stdout, a, f.verbose)
	return nil
}

// analysis is an analysis of the model at path, by what its outputs lose if there are data.
type analysis struct {
	path  string
	model *onnxq.Model
	opts  analyze.Options
	data  calibrate.Options
	warn  bool // of data that may mislead
}

func (a analysis) run(ctx context.Context, c *console, quiet bool) (*analyze.Analysis, error) {
	bar := newProgress(c, quiet)
	defer bar.clear()
	a.opts.Progress = bar.update
	if len(a.data.Data) > 0 {
		a.opts.Progress, a.data.Progress = nil, bar.step
		s, err := sensitivity.Open(ctx, a.path, a.data)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if a.warn {
			bar.clear()
			c.warnAll(s.Warnings())
		}
		a.opts.Damage = s
		if !quiet {
			a.opts.Damage = &told{Sensitivity: s, console: c, bar: bar}
		}
	}
	bar.begin()
	found, err := analyze.Model(ctx, a.model, a.opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.path, err)
	}
	return found, nil
}

// told tells what measurements will take, before the first.
type told struct {
	*sensitivity.Sensitivity
	console *console
	bar     *progress
	once    sync.Once
}

func (t *told) Expect(n int) {
	t.Sensitivity.Expect(n)
	t.once.Do(func() {
		t.bar.clear()
		samples, taken := t.Samples()
		printFacts(t.console.stderr, []fact{{"weighing", fmt.Sprintf("%s over %s, which take about %.0f s",
			english.Plural(n, "run", ""), english.Plural(samples, "sample", ""), math.Ceil(float64(n)*taken.Seconds()))}})
		t.bar.begin()
	})
}

func (f *analyzeFlags) options(fs *pflag.FlagSet) (analyze.Options, error) {
	opts := analyze.Options{Options: f.opts, MaxError: f.maxError}
	if fs.Changed("max-error") && f.maxError <= 0 {
		return opts, usagef("--max-error %v: want more than 0", f.maxError)
	}
	check := f.opts
	if len(f.run.Data) > 0 && check.Algorithm.NeedsData() {
		check.Algorithm = spec.Best // needs no data to be checked
	}
	if err := check.Check(); err != nil {
		return opts, usagef("%v", err)
	}
	if len(f.run.Data) == 0 {
		for _, name := range []string{"samples", "length", "seed", "engine", "ort-lib"} {
			if fs.Changed(name) {
				return opts, usagef("--%s is for outputs: give --calib, too", name)
			}
		}
	} else if f.maxError > 0 {
		return opts, usagef("--calib finds the best model of a size: give --max-size, such as --max-size 100MiB, without --max-error")
	} else if f.maxSize == "" && (f.emit != "" || f.page != "") {
		return opts, usagef("--calib recommends formats for a size: give --max-size, such as --max-size 100MiB")
	}
	if f.maxSize != "" {
		if err := (byteCount{value: &opts.MaxSize}).Set(f.maxSize); err != nil {
			return opts, usagef("--max-size %q: %v", f.maxSize, err)
		}
	}
	var err error
	opts.Candidates, err = parseCandidates(f.candidates)
	return opts, err
}

// parseCandidates parses the list of --candidates.
func parseCandidates(texts []string) (list []spec.Candidate, err error) {
	for _, text := range texts {
		c, err := spec.ParseCandidate(strings.ToLower(strings.TrimSpace(text)))
		if err != nil {
			return nil, usagef("--candidates: %v", err)
		}
		list = append(list, c)
	}
	if len(list) > 0 && !slices.ContainsFunc(list, func(c spec.Candidate) bool { return c.Format != spec.Float }) {
		return nil, usagef("--candidates float: every weight may stay in float anyway; name formats to compare it with")
	}
	return list, nil
}

// suiteJSON is the JSON of --suite.
type suiteJSON struct {
	Results []quality.Result `json:"results"`
}

// printSuite prints the benchmark suite of package quality.
func (f *analyzeFlags) printSuite(c *console) error {
	results, err := quality.Suite(quality.SuiteWeights(1))
	if err != nil {
		return err
	}
	if f.json {
		return c.json(suiteJSON{results})
	}
	rows := [][]string{{"WEIGHTS", "SETTING", "SQNR", "SQNR OF A SINE", "MSE", "LARGEST ERROR", "BOUND", "COMPRESSION", "DB PER BIT"}}
	for _, r := range quality.ByEfficiency(results) {
		rows = append(rows, []string{
			r.Weights, r.Setting.String(), decibels(r.Stats.SQNR), decibels(quality.TheoreticalSQNR(r.Setting.Bits)),
			fmt.Sprintf("%.3g", r.Stats.MSE), fmt.Sprintf("%.3g", r.Stats.MaxError), suiteBound(r),
			fmt.Sprintf("%.2f", r.Compression), fmt.Sprintf("%.2f", r.Efficiency()),
		})
	}
	printTable(c.stdout, rows)
	return nil
}

// suiteBound returns the largest error in theory, and whether the errors are within it.
func suiteBound(r quality.Result) string {
	if r.WithinBounds {
		return fmt.Sprintf("%.3g, met", r.Comparison.MaxError)
	}
	return fmt.Sprintf("%.3g, exceeded", r.Comparison.MaxError)
}
