package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/onnxq/spec"
	"onnxquant/report"
	"onnxquant/verify"
)

// reportCommandFlags are the flags of the command report.
type reportCommandFlags struct {
	verifyFlags
	html       string
	candidates []string
	target     spec.Target
	threads    int
	memory     int64
}

func (f *reportCommandFlags) flagSet() *pflag.FlagSet {
	fs := newFlagSet()
	fs.StringVar(&f.html, "html", "", "write the page to `FILE` (default OUT.html, of the first OUT)")
	fs.StringSliceVar(&f.candidates, "candidates", nil,
		"formats to try for comparison, a `LIST` as of analyze, or none\n(default: as of analyze)")
	fs.Var(choice[spec.Target]{&f.target, spec.Targets(), "NAME"}, "target", "runtime that these formats must suit (default portable)")
	f.defineComparison(fs)
	defineResources(fs, &f.threads, &f.memory)
	fs.BoolVar(&f.json, "json", false, "print the report as JSON; the page is written only with --html")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, quietUsage)
	fs.BoolVarP(&f.help, "help", "h", false, helpUsage)
	return fs
}

func reportCommand() command {
	return command{
		name: "report", summary: "write a page from which to judge a quantized model",
		args:    []string{"[flags] IN OUT [OTHER...]"},
		example: "in.onnx out.onnx",
		text: `Writes a page, one HTML file that needs no network, from which to decide whether
OUT, a quantized model of the float model IN from any tool, is good enough: checks
and their limits, size and error beside what else was possible, the cost and the
errors of each weight, outputs, problems of runtimes, what stayed float, and a
precision_info for the worst weights. OTHER are more quantized models to compare
OUT with.`,
		after: "Exit status: that of onnxquant verify IN OUT; OTHER do not change it.",
		flags: func() *pflag.FlagSet { return new(reportCommandFlags).flagSet() },
		run:   runReport,
	}
}

func runReport(ctx context.Context, c *console, args []string) error {
	var f reportCommandFlags
	fs := f.flagSet()
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.help("report")
	}
	if err := noPage(fs.Args(), "html"); err != nil {
		return err
	}
	if fs.NArg() < 2 {
		return wrongCount("report takes a float model and at least one quantized model", fs)
	}
	if err := f.finish(fs); err != nil {
		return err
	}
	opts := reportOptions(args, "report")
	opts.Verify, opts.Target, opts.Threads, opts.Memory = f.opts, f.target, f.threads, f.memory
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
	bar := newProgress(c, f.quiet)
	opts.Verify.Progress = bar.share
	r, err := report.Models(ctx, fs.Arg(0), fs.Args()[1:], opts)
	bar.clear()
	if err != nil {
		return comparisonError(err)
	}
	if err := writePage(page, r); err != nil {
		return err
	}
	if f.json {
		if err := c.json(r); err != nil {
			return err
		}
	} else if !f.quiet {
		printReport(c.stderr, r, &f.opts, page)
	}
	return verifyStatus(r.Verification)
}

// noPage refuses an argument that is meant for a page, which a flag names.
func noPage(args []string, flag string) error {
	for _, path := range args {
		if ext := strings.ToLower(filepath.Ext(path)); ext == ".html" || ext == ".htm" {
			return usagef("%s is no model; for the page, write --%s %s", path, flag, path)
		}
	}
	return nil
}

// trial returns the candidates, or that there are none.
func (f *reportCommandFlags) trial() (list []spec.Candidate, none bool, err error) {
	if len(f.candidates) == 1 && f.candidates[0] == "none" {
		return nil, true, nil
	}
	list, err = parseCandidates(f.candidates)
	return list, false, err
}

// reportOptions returns the options that say where a report comes from.
func reportOptions(args []string, command ...string) report.Options {
	words := append([]string{"onnxquant"}, command...)
	for _, arg := range args {
		words = append(words, shellQuoted(arg))
	}
	return report.Options{Tool: "onnxquant " + buildVersion(), Command: strings.Join(words, " ")}
}

// shellQuoted quotes an argument as a POSIX shell wants it, if it must be quoted.
func shellQuoted(arg string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("-_./:=,@%+", r) || r > 127
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// checkPage returns an error if a page cannot or must not be written to path: an existing file is
// replaced only if it is empty or a page. "" stands for no page.
func checkPage(path string) error {
	if path == "" {
		return nil
	}
	if err := checkPlace(path); err != nil {
		return err
	}
	if !hasContent(path) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, len(report.Head))
	if _, err := io.ReadFull(f, head); err != nil || string(head) != report.Head {
		return fmt.Errorf("%s: the file exists and is not a report; choose another file for the page", path)
	}
	return nil
}

// writePage writes the page to path, completely or not at all; "" stands for no page.
func writePage(path string, r *report.Report) error {
	if path == "" {
		return nil
	}
	if err := checkPage(path); err != nil {
		return err // it may be a model that this command has just written
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		return err
	}
	return writeFile(path, page.Bytes())
}

// printReport prints the verdicts, and where the page is.
func printReport(w io.Writer, r *report.Report, opts *verify.Options, page string) {
	facts := labelled("verdict", first(maxLines, verdictTexts(r.Verification, opts)))
	out := r.Outs[0]
	facts = append(facts, swapHint(r.Verification)...)
	facts = append(facts, fact{"size", sizes(r.In.Bytes, out.Bytes)}, fact{"error", weightErrorText(r)})
	var others []string
	for _, other := range r.Outs[1:] {
		result := "failed, which does not change the exit status"
		if other.Passed {
			result = "passed"
		}
		others = append(others, name(other.Path)+" "+result)
	}
	facts = append(facts, labelled("other", others)...)
	if page != "" {
		facts = append(facts, fact{"page", printable(page)})
	}
	printFacts(w, facts)
}

// weightErrorText tells the error of the weights, if any could be compared: of those that the model quantizes,
// which other models do not change, and of all that are compared, if they are more.
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
