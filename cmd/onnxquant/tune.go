package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/othertools"
	"onnxquant/internal/remote"
	"onnxquant/internal/summary"
	"onnxquant/internal/target"
	"onnxquant/onnxq"
	"onnxquant/onnxq/tune"
	"onnxquant/spec"
)

// tuneFlags are those of tune, which runs this program for each candidate.
type tuneFlags struct {
	opts  tune.Options
	score tune.Score
	drop  string
	kinds []string

	smallest, fastest, best bool
	page                    string
	json, quiet, help       bool
}

func (f *tuneFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	o, g := &f.opts, &f.opts.Goal
	fs.StringArrayVar(&o.Data, "calib", nil, "samples of inputs, `DATA` as --calib of a conversion takes them:\nhalf of them calibrate, the others choose and judge; may be\nrepeated")
	cli.AlsoData(fs, "calib")
	fs.Var(cli.Number[int]{Value: &o.Samples, Valid: func(n int) bool { return n >= 8 }, Want: "at least 8"}, "samples", fmt.Sprintf("how many samples are used in all (default %d)", tune.DefaultSamples))
	fs.StringVar(&o.Labels, "labels", "", "`NAME` of an array of the data with the true class of each row:\nthe score is the accuracy, in percent")
	fs.StringVar(&f.score.Command, "score", "", "`COMMAND` of your own that gets the path of a model, in place\nof {} or at its end, and whose last line is a number: higher is\nbetter")
	fs.BoolVar(&f.score.LowerIsBetter, "lower-is-better", false, "a lower score is better")
	fs.StringVar(&f.score.Final, "final-score", "", "`COMMAND` that judges the winner on data that --score does\nnot use")
	fs.DurationVar(&f.score.Timeout, "score-timeout", 0, fmt.Sprintf("stop a score command after `TIME` (default %s)", strings.TrimSuffix(tune.DefaultScoreTimeout.String(), "0s")))
	fs.StringVar(&f.drop, "max-drop", "", "largest `DROP` of the score: an amount, or a share such as 1%;\nwithout --score, share of rows with another largest class")
	fs.Var(cli.Optional{To: &g.MinScore, Kind: "SCORE"}, "min-score", "least score; with --lower-is-better the largest")
	fs.Var(cli.Optional{To: &g.MaxKL, Kind: "E"}, "max-kl", "largest mean KL divergence of an output with distributions")
	fs.Var(cli.Optional{To: &g.MinSQNR, Kind: "DB"}, "min-sqnr", "least SQNR of an output")
	fs.Var(cli.ByteCount{Value: &g.MaxSize}, "max-size", "largest size of OUT with its external data")
	fs.Var(cli.Limit{Value: &g.MaxSlowdown, Kind: "X"}, "max-slowdown", "largest time of a run of OUT in ONNX Runtime over that of IN,\nsuch as 1.1; with one thread, or with --threads")
	fs.DurationVar(&g.MaxLatency, "max-latency", 0, "largest `TIME` of a run, such as 20ms, likewise")
	fs.BoolVar(&f.smallest, "smallest", false, "choose the smallest model within the limits (the default)")
	fs.BoolVar(&f.fastest, "fastest", false, "choose the fastest one")
	fs.BoolVar(&f.best, "best", false, "choose the one that loses least; needs a limit of size or time")
	fs.VarP(cli.Choice[spec.Target]{Value: &o.Target, Allowed: spec.Targets(), Kind: "NAME", Aliases: target.Aliases()}, "target", "t", "runtime for OUT: "+cli.OneOf(spec.Targets())+"\n(default portable)")
	fs.Var(cli.Choices{Value: &o.Ops, Allowed: append(onnxq.KnownOps(), "all"), Aliases: othertools.Operators}, "ops", "operators whose weights are quantized (default all)")
	fs.StringArrayVar(&o.Include, "include", nil, "quantize only weights whose name, or the name of a node that\nreads them, matches `GLOB`; may be repeated")
	fs.StringArrayVarP(&o.Exclude, "exclude", "x", nil, "keep weights whose name, or the name of a node that reads\nthem, matches `GLOB` in float; may be repeated")
	fs.Var(cli.Choices{Value: &f.kinds, Allowed: tuneKinds()}, "try", "what is tried: "+cli.OneAnd(tune.Kinds)+"\n(default all)")
	fs.DurationVar(&o.Budget, "budget", 0, "end the search after `TIME`, such as 20m (default: when\nnothing promises more)")
	fs.Var(cli.Number[int]{Value: &o.Most, Valid: func(n int) bool { return n >= 1 }, Want: "at least 1"}, "trials", fmt.Sprintf("make at most N candidates (default %d)", tune.DefaultMost))
	fs.Var(cli.Number[int]{Value: &o.Jobs, Valid: func(n int) bool { return n >= 1 }, Want: "at least 1"}, "jobs", "make and judge N candidates at the same time (default 1)")
	fs.StringVar(&o.Work, "work", "", "keep results in the folder `DIR`, and go on from what is there")
	fs.VarP(cli.NotNegative(&o.Threads), "threads", "j", "number of threads of conversions and of measured runs\n(default: one per CPU, and one for runs)")
	fs.StringVar(&o.Library, "ort-lib", "", ortLibUsage)
	fs.BoolVar(&o.AllowFallback, "allow-fallback", false, "if nothing reaches the goal, write what comes nearest")
	fs.StringVar(&f.page, "report", "", "write a page with the frontier to `FILE`")
	fs.BoolVarP(&o.DryRun, "dry-run", "n", false, "write nothing; list the candidates, with estimates")
	fs.BoolVar(&o.Force, "force", false, "replace OUT also if it is read-only or a file of another kind")
	fs.BoolVar(&f.json, "json", false, "print the result as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

// errWork ends the message of a search that a signal stopped, if --work is given.
var errWork = errors.New("--work keeps what was measured: the same command goes on from there")

func tuneKinds() (words []string) {
	for _, k := range tune.Kinds {
		words = append(words, string(k))
	}
	return words
}

func tuneCommand() cli.Command {
	return cli.Command{
		Name: "tune", Summary: "find the settings that reach a goal of yours",
		Args:    []string{"[flags] IN OUT"},
		Example: "in.onnx out.onnx",
		Text: `Searches the smallest, the fastest or the most exact model within your limits. It tries
formats, algorithms, mixes of formats, activations of 8 bits and float16, estimates before
it converts, and makes only what promises most. The winner is judged on samples that the
search never saw. Prints the command line that makes OUT again.`,
		After: `Exit status: 0 OUT reaches the goal, also if the time was over or an interrupt ended the
search, or --allow-fallback took what comes nearest; 1 nothing reaches it, or something
failed; 2 wrong usage; 130 interrupted before anything was found.`,
		Flags: func() *pflag.FlagSet { return new(tuneFlags).flagSet() },
		Run:   runTune,
	}
}

func runTune(ctx context.Context, c *cli.Console, args []string) error {
	var f tuneFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("tune")
	}
	in, out, err := cli.InOut(fs, f.opts.DryRun)
	if err == nil {
		err = cli.WantFile(in, out, ".onnx")
	}
	if err == nil {
		err = f.finish()
	}
	if err == nil {
		err = checkPage(f.page)
	}
	if err == nil && !f.opts.Force && !f.opts.DryRun {
		err = cli.CheckForce(out, modelfile.KindONNX, in)
	}
	if err != nil {
		return err
	}
	paths, remove, err := remote.Local(ctx, []string{in}, false)
	if err != nil {
		return err
	}
	defer remove()
	f.opts.Input = remote.Plain(in)
	table := summary.NewTrials(c, &f.opts.Goal, f.quiet)
	f.opts.Tried, f.opts.Progress, f.opts.Warn = table.Add, table.Progress, table.Warn
	r, err := tune.Search(ctx, paths[0], out, f.opts)
	table.Close()
	if err != nil && ctx.Err() != nil && f.opts.Work != "" {
		err = fmt.Errorf("%w; %w", err, errWork)
	}
	if errors.Is(err, tune.ErrOptions) {
		return cli.Usagef("%v", err)
	}
	if r == nil {
		return err
	}
	if f.page != "" {
		err = errors.Join(err, writePageOf(f.page, r.WriteHTML))
	}
	if f.json {
		err = errors.Join(err, c.JSON(r))
	} else if !f.quiet {
		summary.Tuned(c, r, f.page)
	}
	return err
}

// finish completes the options.
func (f *tuneFlags) finish() error {
	o, g := &f.opts, &f.opts.Goal
	if n := len(slices.DeleteFunc([]bool{f.smallest, f.fastest, f.best}, func(given bool) bool { return !given })); n > 1 {
		return cli.Usagef("--smallest, --fastest and --best: want one of them, got %s", english.Plural(n, "flag", ""))
	}
	switch {
	case f.fastest:
		g.Objective = tune.Fastest
	case f.best:
		g.Objective = tune.Best
	}
	if f.drop != "" {
		d, err := tune.ParseDrop(f.drop)
		if err != nil {
			return cli.Usagef("--max-drop %q: %v", f.drop, err)
		}
		g.MaxDrop = &d
	}
	for _, word := range f.kinds {
		o.Try = append(o.Try, tune.Kind(word))
	}
	if f.score.Command != "" {
		o.Score = &f.score
	} else if f.score != (tune.Score{}) {
		return cli.Usagef("--lower-is-better, --final-score and --score-timeout are for --score")
	}
	for _, d := range []time.Duration{o.Budget, g.MaxLatency, f.score.Timeout} {
		if d < 0 {
			return cli.Usagef("%v is a negative time", d)
		}
	}
	if slices.Contains(o.Data, "self") {
		return cli.Usagef("--calib self: a search needs samples of yours, to judge by")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Version, o.Make = buildVersion(), tune.Program(self, os.Args[0])
	return nil
}
