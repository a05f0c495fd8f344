package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/remote"
	"onnxquant/internal/summary"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/verify"
)

type verifyFlags struct {
	opts                       verify.Options
	minSQNR, minOutputSQNR     float64 // these are copied to opts if given
	minCosine, maxError        float64
	requireOutputs             bool
	failOn                     verify.Verdict
	page                       string
	json, quiet, verbose, help bool
}

func (f *verifyFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	f.defineComparison(fs)
	definePage(fs, &f.page)
	fs.BoolVar(&f.json, "json", false, "print the report as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing; the exit status is the result")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print all weights, notes and failures")
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

// defineComparison defines the flags that say how models are compared.
func (f *verifyFlags) defineComparison(fs *pflag.FlagSet) {
	o := &f.opts
	fs.Var(cli.Limit{Value: &f.minSQNR, Kind: "DB"}, "min-sqnr", fmt.Sprintf("fail if the SQNR of a weight or an output is below DB\n(default %g for weights, %g if they have 2 bits, %g for outputs)", verify.LeastFineSQNR, verify.LeastSQNR, verify.LeastOutputSQNR))
	fs.Var(cli.Limit{Value: &f.minOutputSQNR, Kind: "DB"}, "min-output-sqnr", "the same for outputs alone")
	fs.Var(cli.Limit{Value: &f.minCosine, Kind: "C"}, "min-cosine", fmt.Sprintf("fail if the cosine of an output is below C (default %g)", verify.LeastCosine))
	fs.Var(cli.Limit{Value: &f.maxError, Kind: "E"}, "max-error", "fail if the error of an element of a weight or an output is\nabove E")
	fs.Var(cli.Choice[verify.Engine]{Value: &o.Engine, Allowed: verify.Engines, Kind: "ENGINE"}, "engine",
		"runtime: go, ort (ONNX Runtime), onnx-go (in builds with the\ntag onnxgo), none, or auto: go, else ort,\nand ort for OUT itself (default auto)")
	fs.BoolVar(&f.requireOutputs, "require-outputs", false, "fail if the outputs were not compared (default with\n--engine go, ort or onnx-go, --inputs, --dim or a limit of outputs)")
	fs.Var(cli.Choice[verify.Verdict]{Value: &f.failOn, Allowed: verify.Verdicts[:2], Kind: "VERDICT"}, "fail-on", "verdict whose exit status is not 0: failed, or poor as well\n(default failed)")
	fs.StringVar(&o.ORTLibrary, "ort-lib", "", ortLibUsage)
	fs.StringArrayVar(&o.Inputs, "inputs", nil, "inputs of the models, a .pb, .npy, .npz or .jsonl `FILE`, or a\nfolder of such; may be repeated (default: random inputs)")
	cli.AlsoData(fs, "inputs")
	fs.Uint64Var(&o.Seed, "seed", 0, "seed `N` of random inputs (default 0)")
	fs.Var(cli.SizesOf{Value: &o.Dims}, "dim", "size of a symbolic dimension; may be repeated")
	fs.StringArrayVar(&o.Logits, "logits", nil, "output `NAME` has logits, whose softmax is a distribution; may\nbe repeated (default: outputs with logit in their names)")
	fs.BoolVar(&o.Trace, "trace", false, "compare values inside of the models: where errors enter")
	fs.DurationVar(&o.Timeout, "timeout", 0, "stop an engine that runs the models for longer than `TIME`,\nsuch as 90s or 10m; the Go engine may then take more work\nand memory than fits the size of the model (default: 2m for\nsmall models; no limit with --engine)")
}

func verifyCommand() cli.Command {
	return cli.Command{
		Name: "verify", Summary: "compare a quantized model with the float model",
		Args:    []string{"[flags] IN OUT"},
		Example: "in.onnx out.onnx",
		Text: `Compares the float model IN with the quantized model OUT, from any tool. It checks
that only weights changed, and measures the error of each weight and of each output.
For the outputs it runs both models on the same inputs, OUT with its weights as floats;
ONNX Runtime, if it is found, also runs OUT itself.`,
		After: `Verdicts: failed, something besides weights changed, an error is beyond its limit, or OUT
does not run; poor, it runs, but outputs say that it is of little use; sound, nothing
speaks against it, but quality was not judged; passed, your limits on your data.
Exit status: 0 sound or passed, or poor without --fail-on poor; 1 failed, or a file
cannot be read; 2 wrong usage; 3 nothing failed, but the outputs were not compared
although that is required; 4 poor.`,
		Flags: func() *pflag.FlagSet { return new(verifyFlags).flagSet() },
		Run:   runVerify,
	}
}

func runVerify(ctx context.Context, c *cli.Console, args []string) error {
	var f verifyFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("verify")
	}
	if err := noPage(fs.Args(), "report"); err != nil {
		return err
	}
	if fs.NArg() != 2 {
		return cli.WrongCount("verify takes two models", fs)
	}
	if err := f.finish(fs); err != nil {
		return err
	}
	if err := checkPage(f.page); err != nil {
		return err
	}
	paths, remove, err := remote.Local(ctx, fs.Args(), false)
	if err != nil {
		return err
	}
	defer remove()
	bar := cli.NewProgress(c, f.quiet)
	f.opts.Progress = bar.Share
	verified, err := f.compare(ctx, args, paths[0], paths[1])
	bar.Clear()
	switch {
	case err != nil:
		return comparisonError(err)
	case f.quiet:
	case f.json:
		err = c.JSON(verified)
	default:
		summary.Verification(c.Stdout, verified, f.verbose)
	}
	if err != nil {
		return err
	}
	return f.status(verified)
}

// finish moves the limits that were given to the options, and checks the flags.
func (f *verifyFlags) finish(fs *pflag.FlagSet) error {
	for name, given := range map[string]struct {
		option **float64
		value  *float64
	}{
		"min-sqnr": {&f.opts.MinSQNR, &f.minSQNR}, "min-output-sqnr": {&f.opts.MinOutputSQNR, &f.minOutputSQNR},
		"min-cosine": {&f.opts.MinCosine, &f.minCosine}, "max-error": {&f.opts.MaxError, &f.maxError},
	} {
		if fs.Changed(name) {
			*given.option = given.value
		}
	}
	if fs.Changed("require-outputs") {
		f.opts.RequireOutputs = &f.requireOutputs
	}
	if f.opts.Timeout < 0 {
		return cli.Usagef("--timeout %v is negative", f.opts.Timeout)
	}
	return nil
}

// compare compares the models, and writes the page if one is asked for.
func (f *verifyFlags) compare(ctx context.Context, args []string, in, out string) (*verify.Report, error) {
	if f.page == "" {
		return verify.Models(ctx, in, out, f.opts)
	}
	opts := reportOptions(args, "verify")
	opts.Verify = f.opts
	r, err := report.Models(ctx, in, []string{out}, opts)
	if err != nil {
		return nil, err
	}
	return r.Verification, writePage(f.page, r)
}

// comparisonError is the error of a comparison; options that do not fit the models are wrong usage.
func comparisonError(err error) error {
	if errors.Is(err, verify.ErrOptions) {
		return cli.Usagef("%v", err)
	}
	return err
}

// status returns the error that stands for the exit status of a comparison.
func (f *verifyFlags) status(r *verify.Report) error {
	switch {
	case r.NotCompared():
		return cli.ErrIncomplete
	case r.Verdict == verify.Failed:
		return cli.ErrReported
	case r.Verdict == verify.Poor && f.failOn == verify.Poor:
		return cli.ErrPoor
	}
	return nil
}
