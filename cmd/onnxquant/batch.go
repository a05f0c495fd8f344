package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/internal/cli/specvalue"
	"onnxquant/internal/remote"
	"onnxquant/onnxq/attest"
	"onnxquant/onnxq/batch"
	"onnxquant/onnxq/verify"
)

// batchFlags are the flags of onnxquant batch.
type batchFlags struct {
	opts              batch.Options
	noGate, dryRun    bool
	json, quiet, help bool
}

func (f *batchFlags) flagSet() *pflag.FlagSet {
	fs := cli.NewFlagSet()
	o := &f.opts
	fs.VarP(cli.NotNegative(&o.Jobs), "jobs", "j", "models at a time (default: one per CPU)")
	fs.Var(cli.ByteCount{Value: &o.Memory, Least: leastMemory}, "memory",
		"memory of all models in work, by an estimate: with less, fewer\nare in work (default: three quarters of what is free)")
	fs.Var(specvalue.Share{To: &o.Shard}, "shard", "do the share `I/N` of the jobs: 0/4 to 3/4 on four machines,\nwhich may write to one folder")
	o.Gate = verify.Failed
	fs.Var(gateValue{&o.Gate}, "gate", "keep outputs out of OUTDIR whose verdict is worse than\n`VERDICT`, such as sound, also written 'verdict>=sound'\n(default failed: judge, but keep all)")
	fs.BoolVar(&f.noGate, "no-gate", false, "do not judge outputs, which takes runs of the models")
	fs.BoolVar(&o.Attest, "attest", false, "write an in-toto statement beside each output, with its name\nand "+attest.Suffix)
	fs.BoolVarP(&f.dryRun, "dry-run", "n", false, "print the names of the outputs that are not done, and stop")
	fs.BoolVar(&f.json, "json", false, "print the summary as JSON")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print only failures")
	fs.BoolVarP(&f.help, "help", "h", false, cli.HelpUsage)
	return fs
}

func batchCommand() cli.Command {
	return cli.Command{
		Name: "batch", Summary: "convert many models, with a record to go on from",
		Args:    []string{"[flags] JOBS... OUTDIR [-- FLAGS OF A CONVERSION]"},
		Example: "jobs.jsonl out-folder",
		Text: `Converts the models of JOBS to OUTDIR: a file of JSON lines, such as
{"in": "a.onnx", "out": "a.q4.onnx", "options": ["--bits", "4"]}, a folder, a
pattern, or models; - reads lines from standard input. The flags after -- are for all
models; those of a job come after them. Each model is converted in a process of its own.

OUTDIR/manifest.jsonl has a line for each job: hashes, flags, verdict, figures. The same
command again, also after a crash, does what is missing or changed, and nothing else.`,
		After: `Exit status: 0 all outputs are in OUTDIR; 11 one is not, 12 two, and so on to 100,
90 or more; 1 the batch could not be run; 2 wrong usage; 130 interrupted, 143 terminated.`,
		Flags: func() *pflag.FlagSet { return new(batchFlags).flagSet() },
		Run:   runBatch,
	}
}

func runBatch(ctx context.Context, c *cli.Console, args []string) error {
	var f batchFlags
	fs := f.flagSet()
	if err := c.App.Parse(fs, args); err != nil {
		return err
	}
	if f.help {
		return c.Help("batch")
	}
	words, defaults := fs.Args(), []string(nil)
	if n := fs.ArgsLenAtDash(); n >= 0 {
		words, defaults = words[:n], words[n:]
	}
	if len(words) < 2 {
		return cli.Usagef("batch takes jobs and the folder for outputs, such as jobs.jsonl out-folder; flags of the conversions come after --")
	}
	if err := f.finish(c, words[len(words)-1]); err != nil {
		return err
	}
	jobs, err := batch.List(words[:len(words)-1], os.Stdin)
	if err != nil {
		return err
	}
	if _, err := jobFlags(c.App, defaults, nil); err != nil {
		return cli.Usagef("%v", err)
	}
	for i := range jobs {
		j := &jobs[i]
		flags, err := jobFlags(c.App, defaults, j.Options)
		if err == nil && remote.IsObject(f.opts.Folder) && slices.Contains(flags, "--resume=true") {
			err = errors.New("--resume is for outputs that are files: no progress is kept for objects")
		}
		if err != nil {
			j.Wrong = fmt.Errorf("%s: %w", j.At(), err)
			continue
		}
		j.Options = flags
	}
	if f.dryRun {
		return f.plan(ctx, c, jobs)
	}
	return f.run(ctx, c, jobs)
}

// finish completes the options.
func (f *batchFlags) finish(c *cli.Console, folder string) error {
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		return cli.Usagef("%s is a file; the last name is that of the folder for outputs", cli.Printable(folder))
	}
	if err := remote.CheckFolder(folder); err != nil {
		return cli.Usagef("%v", err)
	}
	if f.noGate {
		f.opts.Gate = ""
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.opts.Folder, f.opts.Version = folder, buildVersion()
	f.opts.Convert = batch.Program{Path: self}.Convert
	f.opts.DataFiles = func(options []string) []string {
		var flags convertFlags
		if c.App.ParseInOrder(flags.flagSet(), options) != nil {
			return nil // jobFlags parsed them before
		}
		return flags.dataFiles()
	}
	f.opts.Waits = func() { c.Warn("another run has the manifest; waiting") }
	return nil
}

// ofBatch lists flags of a conversion that a batch sets itself, or that are not for one model among many.
var ofBatch = []string{"json", "quiet", "verbose", "dry-run", "help", "version", "report", "preset", "link", "gate", "attest", "calib-shard"}

// jobFlags joins flags for all jobs with those of one, which count more. The result is sorted by name.
func jobFlags(app *cli.App, all, own []string) ([]string, error) {
	fs, given := new(convertFlags).flagSet(), new(convertFlags).flagSet()
	if err := app.Parse(fs, all); err != nil {
		return nil, err
	}
	if err := app.Parse(given, own); err != nil {
		return nil, err
	}
	if extra := slices.Concat(fs.Args(), given.Args()); len(extra) > 0 {
		return nil, fmt.Errorf("%s is no flag of a conversion", cli.Printable(extra[0]))
	}
	for _, set := range []*pflag.FlagSet{fs, given} {
		if err := cli.LeaveOut(set, "it is not for the conversions of a batch", ofBatch...); err != nil {
			return nil, err
		}
	}
	return cli.Joined(fs, given), nil
}

// plan prints what would be done.
func (f *batchFlags) plan(ctx context.Context, c *cli.Console, jobs []batch.Job) error {
	pending, err := batch.Pending(ctx, jobs, f.opts)
	if err != nil {
		return err
	}
	if f.json {
		err = c.JSON(batch.Planned(pending))
	}
	wrong := 0
	for _, j := range pending {
		if j.Wrong != nil {
			wrong++
		}
		switch {
		case f.json:
			continue
		case j.Wrong != nil:
			c.Line("", fmt.Sprintf("%s %s: %v", batch.Failed, j.Out, j.Wrong))
		default:
			fmt.Fprintf(c.Stdout, "%s\t%s\n", cli.Printable(j.Out), cli.Printable(strings.Join(j.Options, " ")))
		}
	}
	if err == nil && wrong > 0 {
		c.Line("", fmt.Sprintf("%d of %s cannot be done as %s written", wrong, english.Plural(len(jobs), "job", ""), english.PluralWord(wrong, "it is", "they are")))
		err = cli.ErrReported
	}
	return err
}

func (f *batchFlags) run(ctx context.Context, c *cli.Console, jobs []batch.Job) error {
	n := 0
	f.opts.Told = func(r *batch.Record, kept bool) {
		n++
		switch {
		case r.Status != batch.Done:
			c.Line("", fmt.Sprintf("%s %s: %s", r.Status, r.Out, r.Error))
		case !f.quiet && !kept:
			fmt.Fprintf(c.Stderr, "%5d  %s\n", n, cli.Printable(r.String()))
		}
	}
	s, err := batch.Run(ctx, jobs, f.opts)
	if err != nil {
		return err
	}
	if !f.quiet {
		text := fmt.Sprintf("%s in %s, %d of them before; %d refused, %d failed; in %.1f s", english.Plural(s.Done, "output", ""), f.opts.Folder, s.Kept, s.Refused, s.Failed, s.Seconds)
		facts := []cli.Fact{{Label: "done", Text: cli.Printable(text)}, {Label: "manifest", Text: cli.Printable(s.Manifest)}}
		cli.PrintFacts(c.Stderr, append(facts, cli.Labelled("note", s.Notes())...))
	}
	if f.json {
		if err := c.JSON(s); err != nil {
			return err
		}
	}
	if missing := s.Refused + s.Failed; missing > 0 {
		return cli.Shortfall(missing)
	}
	return nil
}
