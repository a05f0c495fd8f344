package main

import (
	"context"
	"fmt"
	"io"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/onnxq/report"
	"onnxquant/onnxq/verify"
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
		page = fs.Arg(1) + ".html"
	}
	if err := checkPage(page); err != nil {
		return err
	}
	bar := cli.NewProgress(c, f.quiet)
	opts.Verify.Progress = bar.Share
	r, err := report.Models(ctx, fs.Arg(0), fs.Args()[1:], opts)
	bar.Clear()
	if err != nil {
		return comparisonError(err)
	}
	if err := writePage(page, r); err != nil {
		return err
	}
	if f.json {
		if err := c.JSON(r); err != nil {
			return err
		}
	} else if !f.quiet {
		printReport(c.Stderr, r, page)
	}
	return f.status(r.Verification)
}

// trial returns the candidates; none is set for --candidates none.
func (f *reportCommandFlags) trial() (list []spec.Candidate, none bool, err error) {
	if len(f.candidates) == 1 && f.candidates[0] == "none" {
		return nil, true, nil
	}
	list, err = parseCandidates(f.candidates)
	return list, false, err
}

// printReport prints the verdicts, and where the page is.
func printReport(w io.Writer, r *report.Report, page string) {
	facts := cli.Labelled("verdict", cli.First(maxLines, verdictTexts(r.Verification)))
	out := r.Outs[0]
	facts = append(facts, cli.Labelled("hint", printables(r.Verification.Hints))...)
	facts = append(facts, cli.Fact{Label: "size", Text: cli.Sizes(r.In.Bytes, out.Bytes)}, cli.Fact{Label: "error", Text: weightErrorText(r)})
	if r.Bench != nil {
		facts = append(facts, cli.Fact{Label: "a run", Text: fmt.Sprintf("takes %.2f times the CPU time of IN in %s", r.Bench.Models[1].CPURatio, r.Bench.Runtime)})
	}
	var others []string
	for _, other := range r.Outs[1:] {
		result := string(other.Verdict)
		if other.Verdict == verify.Failed {
			result += ", which does not change the exit status"
		}
		others = append(others, cli.Name(other.Path)+" "+result)
	}
	facts = append(facts, cli.Labelled("other", others)...)
	if page != "" {
		facts = append(facts, cli.Fact{Label: "page", Text: cli.Printable(page)})
	}
	cli.PrintFacts(w, facts)
}

// weightErrorText describes the error of the weights that the model quantizes. If other models
// quantize more weights, it adds the error over all compared weights.
func weightErrorText(r *report.Report) string {
	if len(r.Weights) == 0 {
		return "unknown: no quantized weight was compared"
	}
	text := fmt.Sprintf("%.4f, of %s", r.OwnError(), english.Plural(len(r.Weights), "weight", ""))
	if r.Sizes.Count > len(r.Weights) {
		text += fmt.Sprintf(" that it quantizes; %.4f, of all %d that are compared", r.Outs[0].Error, r.Sizes.Count)
	}
	return text
}
