package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/folder"
	"onnxquant/internal/preset"
	"onnxquant/onnxq/activations"
)

// folderJob converts the models of a folder.
type folderJob struct {
	console *console
	flags   *convertFlags // of the command line
	args    []string      // the command line, parsed again after the flags of a preset
	source  *folder.Folder
	preset  *preset.Preset
	out     string
	missing []string                     // names of outputs that failed
	broken  []string                     // models that cannot be opened
	full    error                        // the disk is full
	data    map[string]*activations.Data // by model that was looked at; nil if it does not take the data
	folderReport
}

// isFolderJob reports whether a conversion makes a folder.
func (f *convertFlags) isFolderJob(in string) bool {
	info, err := os.Stat(in)
	return f.preset != "" || err == nil && info.IsDir()
}

// runFolder converts a folder, or one model with a preset.
func (f *convertFlags) runFolder(ctx context.Context, c *console, args []string, in, out string) error {
	if f.page != "" {
		return usagef("--report is for one model and one output")
	}
	if err := wantFolder(out); err != nil {
		return err
	}
	j := &folderJob{console: c, flags: f, args: args, out: out, folderReport: folderReport{Outputs: []folderOutput{}, Copied: []string{}}}
	same := preset.Preset{Outputs: []preset.Output{{File: "{name}.onnx"}}}
	j.preset = &same
	var err error
	if f.preset != "" {
		if j.preset, err = preset.Load(f.preset); err != nil {
			return usagef("%v", err)
		}
	}
	for _, o := range j.preset.Outputs {
		if _, err := j.parse(o.FlagsFor("model.onnx", "", nil), j.args); err != nil {
			if f.preset != "" {
				err = j.explain(o, err)
			}
			return err // before anything is read
		}
	}
	j.warnOfTarget()
	if j.source, err = scan(in); err != nil {
		return err
	}
	if len(j.source.Models) == 0 {
		return fmt.Errorf("%s: no .onnx file in the folder", in)
	}
	for _, p := range j.source.Problems {
		j.fail(errors.New(p))
	}
	if out != "" && inside(out, in) {
		return fmt.Errorf("%s: it would be in the folder that is converted; choose another one", out)
	}
	if out != "" && inside(in, out) {
		return fmt.Errorf("%s: what is converted is in it; choose another folder", out)
	}
	if f.dryRun {
		return j.plan(ctx)
	}
	return j.convert(ctx)
}

// plan prints what would be done.
func (j *folderJob) plan(ctx context.Context) error {
	if j.out != "" {
		if err := folder.Check(j.out, j.flags.force, j.writes()); err != nil {
			return err
		}
	}
	err := j.each(ctx, func(outputs []*folderOutput) {
		for _, o := range outputs {
			o.Plan = o.plan
			o.plan.OutBytes, o.err = o.plan.OutputSize(path.Base(o.Output))
		}
	})
	if err != nil {
		return err
	}
	j.Copied = j.rest()
	return j.finish()
}

// convert makes the folder.
func (j *folderJob) convert(ctx context.Context) error {
	start := time.Now()
	target, err := folder.Create(ctx, j.out, j.flags.force, j.writes())
	if err != nil {
		return err
	}
	defer target.Abort()
	err = j.each(ctx, func(outputs []*folderOutput) { j.write(ctx, outputs, target.Temp) })
	if err != nil {
		return err
	}
	if len(j.Outputs) == 0 {
		return fmt.Errorf("%s: nothing was converted, so no folder is written", j.out)
	}
	for _, name := range j.missing {
		if _, err := os.Lstat(filepath.Join(j.out, filepath.FromSlash(name))); err == nil {
			return fmt.Errorf("%s: it stays as it is, for it has %s, which could not be converted again; remove that from it, or choose another folder", j.out, name)
		}
	}
	for _, name := range j.rest() {
		if err := j.source.Copy(ctx, name, target.Temp, j.flags.link); err != nil {
			return err
		}
		j.Copied = append(j.Copied, name)
	}
	if err := j.configure(target.Temp); err != nil {
		j.fail(err)
	}
	if err := target.Commit(); err != nil {
		return err
	}
	if !j.flags.quiet {
		printFacts(j.console.stderr, []fact{{"written", fmt.Sprintf("%s: %s, %s, in %.1f s", printable(j.out), english.Plural(len(j.Outputs), "model", ""), english.Plural(len(j.Copied), "other file", ""), time.Since(start).Seconds())}})
	}
	return j.finish()
}
