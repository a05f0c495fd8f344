package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/cli"
	"onnxquant/internal/folder"
	"onnxquant/internal/preset"
	"onnxquant/internal/summary"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/sensitivity"
	"onnxquant/spec"
)

// folderJob is a folder.Job of a command line.
type folderJob struct {
	folder.Job
	console *cli.Console
	bar     *cli.Progress
	flags   *convertFlags                   // of the command line
	args    []string                        // the command line, which overrides the flags of a preset
	data    map[string]*calibrate.Data      // by model that was looked at; nil if it does not take the data
	fits    map[string]*sensitivity.Fit     // by output
	scales  map[string]map[string][]float32 // of key-value caches, by model
}

// isFolderJob reports whether a conversion makes a folder.
func (f *convertFlags) isFolderJob(in string) bool {
	info, err := os.Stat(in)
	return f.preset != "" || err == nil && info.IsDir()
}

// runFolder converts a folder, or one model with a preset.
func (f *convertFlags) runFolder(ctx context.Context, c *cli.Console, args []string, in, out string) (err error) {
	if f.page != "" {
		return cli.Usagef("--report is for one model and one output")
	}
	if err := wantFolder(out); err != nil {
		return err
	}
	j := &folderJob{console: c, bar: cli.NewProgress(c, f.quiet), flags: f, args: args, data: map[string]*calibrate.Data{}, fits: map[string]*sensitivity.Fit{}, scales: map[string]map[string][]float32{}}
	made := false
	defer func() { j.closeFits(made) }()
	j.Job = folder.Job{
		Preset: &preset.Preset{Outputs: []preset.Output{{File: "{name}.onnx"}}}, Out: out, Replace: f.force, Link: f.link, Brief: !f.json,
		Options: j.options, Planned: func(m *folder.Model, o preset.Output, p *onnxq.Plan) { j.fits[o.Name(m.Name)].Note(p) }, Settled: j.checkDataUsed, Fail: func(err error) { c.Fail(withHint(err)) }, Warn: c.Warn, Tell: j.printOutput, Busy: j.bar,
	}
	if f.preset != "" {
		if j.Preset, err = preset.Load(f.preset); err != nil {
			return cli.Usagef("%v", err)
		}
	}
	if err := j.checkFlags(); err != nil { // before anything is read
		return err
	}
	if j.Source, err = scan(in); err != nil {
		return err
	}
	start := time.Now()
	if f.dryRun {
		r, err := j.Plan(ctx)
		return j.finish(r, err)
	}
	// All outputs of a model are made in one read: their buffers are garbage at the same time. Runs of a model would be slower.
	if os.Getenv("GOGC") == "" && len(f.paths) == 0 {
		defer debug.SetGCPercent(debug.SetGCPercent(25))
	}
	r, err := j.Convert(ctx)
	made = err == nil
	if made && !f.quiet {
		cli.PrintFacts(c.Stderr, []cli.Fact{{Label: "written", Text: fmt.Sprintf("%s: %s, %s, in %.1f s", cli.Printable(out), english.Plural(len(r.Outputs), "model", ""), english.Plural(len(r.Copied), "other file", ""), time.Since(start).Seconds())}})
	}
	return j.finish(r, err)
}

// scan lists a folder, or a model as if it were alone in one.
func scan(in string) (*folder.Folder, error) {
	if info, err := os.Stat(in); err == nil && !info.IsDir() {
		return folder.Alone(in), nil
	}
	return folder.Scan(in)
}

// wantFolder refuses the name of a model file as the output folder, unless that folder exists.
func wantFolder(out string) error {
	if info, err := os.Stat(out); !strings.EqualFold(filepath.Ext(out), ".onnx") || err == nil && info.IsDir() {
		return nil
	}
	return fmt.Errorf("%s: this is the name of a model file, but OUT of a folder or of --preset is a folder; name one, such as %s", cli.Printable(out), cli.Printable(strings.TrimSuffix(out, filepath.Ext(out))))
}

// checkDataUsed returns an error if --calib was given and no output used its data, as a single model
// does that cannot use its data.
func (j *folderJob) checkDataUsed(made int) error {
	for _, data := range j.data {
		if data != nil {
			return nil
		}
	}
	if len(j.flags.paths) == 0 || made == 0 {
		return nil
	}
	return errors.New("--calib: no model takes the data, or none gets integer codes, so no folder is written; leave --calib out to convert without data")
}

// printOutput prints the warnings and the result of an output.
func (j *folderJob) printOutput(o *folder.Output) {
	p := o.Carried()
	for _, w := range append(slices.Clone(p.Warnings), summary.LeftExperts(p)...) {
		j.console.Warn(o.Output + ": " + w)
	}
	if !j.flags.quiet {
		fmt.Fprintf(j.console.Stderr, "%-40s %5.1f %% quantized, %s%s\n", cli.Printable(o.Output), 100*p.Coverage, cli.Sizes(p.InBytes, p.OutBytes), j.calibrated(o))
	}
}

// closeFits removes what was found of activations. If the folder is not made, it stays for --resume.
func (j *folderJob) closeFits(made bool) {
	for _, fit := range j.fits {
		if made {
			fit.Done()
		}
		fit.Close()
	}
	if made {
		os.RemoveAll(stateOf(j.Out)) // also what models left that are not converted
	}
}

// calibrated describes the effect of --calib on a written output.
func (j *folderJob) calibrated(o *folder.Output) string {
	if len(j.flags.paths) == 0 || o.Report == nil {
		return ""
	}
	if a := o.Report.Plan.Activations; a != nil {
		return fmt.Sprintf("; %d of %s in float, damage %.2g", len(a.Float), english.Plural(a.Of, "activation", ""), a.Loss.Damage)
	}
	if a := o.Report.Plan.Dynamic; a != nil {
		return fmt.Sprintf("; %d of %s multiplied in float, damage %.2g", len(a.Decoded), english.Plural(a.Of, "weight", ""), a.Loss.Damage)
	}
	text := ""
	if n := o.Carried().Caches; n > 0 {
		text = fmt.Sprintf("; %s of int8", english.Plural(n, "cache", ""))
	}
	c := o.Report.Calibration
	if c == nil && text != "" {
		return text
	}
	if c == nil {
		return "; without the data of --calib"
	}
	text += fmt.Sprintf("; algorithm %s, %s compared with mse", cmp.Or(j.flags.opts.Algorithm, spec.Best), english.Plural(c.Layers, "calibrated layer", ""))
	if c.Refused {
		text += ", which is better for all"
	}
	for _, fact := range summary.Verdict(c) {
		text += "; " + fact.Text
	}
	return text
}

// finish prints the report. The exit status is 1 if something is missing.
func (j *folderJob) finish(r *folder.Summary, err error) error {
	if err != nil {
		return err
	}
	if j.flags.json {
		if err := j.console.JSON(r); err != nil {
			return err
		}
	} else if j.flags.dryRun {
		for _, name := range r.Copied {
			fmt.Fprintf(j.console.Stderr, "%-40s copied\n", cli.Printable(name))
		}
	}
	if len(r.Failed) > 0 {
		return cli.ErrReported
	}
	return nil
}
