package main

import (
	"context"

	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/internal/remote"
	"onnxquant/internal/summary"
	"onnxquant/onnxq/report"
	"onnxquant/spec"
)

// reportCommandFlags are the flags of the command report.
type reportCommandFlags struct {
	verifyFlags
	html       string
	candidates []string
	target     spec.Target
	bench      bool
	threads    int
	memory     int64
}

func (f *reportCommandFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	fs.StringVar(&f.html, "html", "", "write the page to `FILE` (default OUT.html, of the first OUT)")
	fs.StringSliceVar(&f.candidates, "candidates", nil,
		"formats to try for comparison, a `LIST` as of analyze, or none\n(default: as of analyze)")
	fs.Var(cli.Choice[spec.Target]{Value: &f.target, Allowed: spec.Targets(), Kind: "NAME"}, "target", "runtime that these formats must suit (default portable)")
	fs.BoolVar(&f.bench, "bench", false, "measure how long runs of IN, OUT and OTHER take in ONNX Runtime")
	f.defineComparison(fs)
	defineResources(fs, &f.threads, &f.memory)
	fs.BoolVar(&f.json, "json", false, "print the report as JSON; the page is written only with --html")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

func reportCommand() cli.Command {
	return cli.Command{
		Name: "report", Summary: "write a page from which to judge a quantized model",
		Args:    []string{"[flags] IN OUT [OTHER...]"},
		Example: "in.onnx out.onnx",
		Text: `Writes a page, one HTML file that needs no network, from which to decide whether
OUT, a quantized model of the float model IN from any tool, is good enough: checks
and their limits, size and error beside what else was possible, the cost and the
errors of each weight, outputs, problems of runtimes, what stayed float, and a
precision_info for the worst weights. OTHER are more quantized models to compare
OUT with.`,
		After: "Exit status: that of onnxquant verify IN OUT; OTHER do not change it.",
		Flags: func() *pflag.FlagSet { return new(reportCommandFlags).flagSet() },
		Run:   runReport,
	}
}

func runReport(ctx context.Context, c *cli.Console, args []string) error {
	var f reportCommandFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("report")
	}
	if err := noPage(fs.Args(), "html"); err != nil {
		return err
	}
	if fs.NArg() < 2 {
		return cli.WrongCount("report takes a float model and at least one quantized model", fs)
	}
	if err := f.finish(fs); err != nil {
		return err
	}
	opts := reportOptions(args, "report")
	opts.Verify, opts.Target, opts.Threads, opts.Memory, opts.Bench = f.opts, f.target, f.threads, f.memory, f.bench
	var err error
	if opts.Candidates, opts.NoTrial, err = f.trial(); err != nil {
		return err
	}
	page := f.html
	if page == "" && !f.json {
		if page = fs.Arg(1) + ".html"; remote.Is(page) {
			return cli.Usagef("%s is not on this machine: --html FILE says where the page goes", cli.Printable(fs.Arg(1)))
		}
	}
	if err := checkPage(page); err != nil {
		return err
	}
	paths, remove, err := remote.Local(ctx, fs.Args(), false)
	if err != nil {
		return err
	}
	defer remove()
	bar := cli.NewProgress(c, f.quiet)
	opts.Verify.Progress = bar.Share
	r, err := report.Models(ctx, paths[0], paths[1:], opts)
	bar.Clear()
	if err != nil {
		return comparisonError(err)
	}
	r.In.Path = remote.Plain(fs.Arg(0))
	for i := range r.Outs {
		r.Outs[i].Path = remote.Plain(fs.Arg(i + 1))
	}
	if err := writePage(page, r); err != nil {
		return err
	}
	if f.json {
		if err := c.JSON(r); err != nil {
			return err
		}
	} else if !f.quiet {
		summary.Report(c.Stderr, r, page)
	}
	return f.status(r.Verification)
}

// trial returns the candidates; none is set for --candidates none.
func (f *reportCommandFlags) trial() (list []spec.Candidate, none bool, err error) {
	if len(f.candidates) == 1 && f.candidates[0] == "none" {
		return nil, true, nil
	}
	list, err = specvalue.Candidates(f.candidates)
	return list, false, err
}
