package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize/english"

	"onnxquant/internal/folder"
	"onnxquant/internal/preset"
	"onnxquant/onnxq"
	"onnxquant/onnxq/activations"
	"onnxquant/onnxq/spec"
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

// folderReport says what a folder holds.
type folderReport struct {
	Outputs []folderOutput `json:"outputs"`          // models that were made
	Copied  []string       `json:"copied"`           // other files
	Failed  []string       `json:"failed,omitempty"` // what is not in the output, with the reason
}

// folderOutput is a model of the output.
type folderOutput struct {
	Model  string        `json:"model"`            // in the input
	Output string        `json:"output"`           // in the output
	Plan   *onnxq.Plan   `json:"plan,omitempty"`   // of a dry run
	Report *onnxq.Report `json:"report,omitempty"` // of a conversion

	plan *onnxq.Plan // that is, or was, carried out
	err  error       // why it is not made, or nil
	data []string    // names of its external data files
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

// wantFolder refuses the name of a model as that of a folder, unless there is such a folder.
func wantFolder(out string) error {
	if info, err := os.Stat(out); !strings.EqualFold(filepath.Ext(out), ".onnx") || err == nil && info.IsDir() {
		return nil
	}
	return fmt.Errorf("%s: OUT of a folder, and of --preset, is a folder, and this is the name of a model; name a folder, such as %s", printable(out), printable(strings.TrimSuffix(out, filepath.Ext(out))))
}

// scan lists a folder, or a model as if it were alone in one.
func scan(in string) (*folder.Folder, error) {
	if info, err := os.Stat(in); err == nil && !info.IsDir() {
		return &folder.Folder{Path: filepath.Dir(in), Models: []string{filepath.Base(in)}}, nil
	}
	return folder.Scan(in)
}

// inside reports whether out is the folder in, or in it.
func inside(out, in string) bool {
	info, err := os.Stat(in)
	if err != nil || !info.IsDir() {
		return false
	}
	dir, err := filepath.Abs(out)
	for ; err == nil; dir = filepath.Dir(dir) {
		if there, err := os.Stat(dir); err == nil && os.SameFile(there, info) {
			return true
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return false
}

// fail names something that is not done; the rest of the folder is.
func (j *folderJob) fail(err error) {
	text := err.Error()
	j.console.fail(err)
	j.Failed = append(j.Failed, text)
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

// write converts a model to outputs in the folder temp, in one read.
func (j *folderJob) write(ctx context.Context, outputs []*folderOutput, temp string) {
	var all []onnxq.Output
	for _, o := range outputs {
		all = append(all, onnxq.Output{Plan: o.plan, Path: filepath.Join(temp, filepath.FromSlash(o.Output))})
	}
	if err := os.MkdirAll(filepath.Dir(all[0].Path), 0o777); err != nil { // of all of them
		for _, o := range outputs {
			o.err = err
		}
		return
	}
	there := func(name string) string { return strings.Replace(name, temp, j.out, 1) }
	for i, made := range onnxq.ConvertAll(ctx, all) {
		o, r := outputs[i], made.Report
		if made.Err != nil {
			for _, state := range []string{".~calib", ".~calib.json"} {
				os.Remove(all[i].Path + state)
			}
			o.err = errors.New(strings.ReplaceAll(made.Err.Error(), temp, j.out))
			if errors.Is(made.Err, syscall.ENOSPC) {
				j.full = fmt.Errorf("%s: no folder is written, for the disk is full: %w", j.out, o.err)
			}
			continue
		}
		o.plan, o.Report, r.Output = r.Plan, r, there(r.Output)
		if r.Data == "" {
			continue
		}
		for _, data := range append([]string{r.Data}, r.MoreData...) {
			o.data = append(o.data, path.Join(path.Dir(o.Output), filepath.Base(data)))
		}
		r.Data = there(r.Data)
		for i := range r.MoreData {
			r.MoreData[i] = there(r.MoreData[i])
		}
	}
}

// rest lists the files that are copied. A model that cannot be opened is not: nobody could load it.
func (j *folderJob) rest() []string {
	made := map[string]bool{}
	for _, o := range j.Outputs {
		made[o.Output] = true
		for _, name := range o.data {
			made[name] = true
		}
	}
	rest := slices.Clone(j.source.Others)
	if j.preset.Keep {
		for _, m := range j.preset.Sources(j.source.Models) {
			if !slices.Contains(j.broken, m) {
				rest = append(append(rest, m), j.source.Data[m]...)
			}
		}
	}
	slices.Sort(rest)
	return slices.DeleteFunc(slices.Compact(rest), func(name string) bool { return made[name] })
}

// writes returns which files the output has, as far as names say: not its external data.
func (j *folderJob) writes() func(name string) bool {
	names := slices.Clone(j.source.Others)
	for _, m := range j.preset.Sources(j.source.Models) {
		for _, o := range j.preset.Outputs {
			names = append(names, o.Name(m))
		}
		if j.preset.Keep {
			names = append(append(names, m), j.source.Data[m]...)
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }
}

// atOnce is the number of outputs that are made in one read of a model: each has its structure in
// memory.
const atOnce = 8

// each plans the outputs of each model, from one opened file, and hands those on that can be made.
// What fails is named, and the others follow.
func (j *folderJob) each(ctx context.Context, do func(outputs []*folderOutput)) error {
	bar := newProgress(j.console, j.flags.quiet)
	for _, model := range j.preset.Sources(j.source.Models) {
		m, err := onnxq.Open(j.source.File(model))
		if err != nil {
			j.fail(err)
			j.broken = append(j.broken, model)
			for _, o := range j.preset.Outputs {
				j.missing = append(j.missing, o.Name(model))
			}
			if j.preset.Keep {
				j.missing = append(j.missing, model)
			}
			continue
		}
		for some := range slices.Chunk(j.preset.Outputs, atOnce) {
			outputs := j.make(ctx, openModel{model, m, bar}, some, do)
			bar.clear()
			if ctx.Err() != nil {
				m.Close()
				return context.Cause(ctx)
			}
			if j.full != nil {
				m.Close()
				return j.full
			}
			for _, o := range outputs {
				j.tell(o)
			}
		}
		m.Close()
	}
	return j.checkCalibrated()
}

// checkCalibrated is an error if there are data, and no output was made with them: then all of --calib
// was in vain, as for a single model that does not take its data.
func (j *folderJob) checkCalibrated() error {
	for _, data := range j.data {
		if data != nil {
			return nil
		}
	}
	if len(j.flags.paths) == 0 || len(j.Outputs) == 0 {
		return nil
	}
	return errors.New("--calib: no model takes the data, or none gets integer codes, so no folder is written; leave --calib out to convert without data")
}

// openModel is a model of a folder.
type openModel struct {
	name string
	*onnxq.Model
	bar *progress
}

// make plans some outputs of a model and hands those on that can be made.
func (j *folderJob) make(ctx context.Context, m openModel, some []preset.Output, do func(outputs []*folderOutput)) (outputs []*folderOutput) {
	joint := &jointProgress{tell: m.bar.update}
	var planned []*folderOutput
	for _, o := range some {
		if ctx.Err() != nil {
			return nil
		}
		made := &folderOutput{Model: m.name, Output: o.Name(m.name)}
		if made.plan, made.err = j.planned(ctx, m, o, joint.part()); made.err == nil {
			planned = append(planned, made)
		}
		outputs = append(outputs, made)
	}
	if len(planned) > 0 {
		if !j.flags.dryRun {
			m.bar.begin()
		}
		do(planned)
	}
	return outputs
}

// tell reports what became of an output.
func (j *folderJob) tell(o *folderOutput) {
	if o.err != nil {
		j.fail(fmt.Errorf("%s: %w", o.Output, o.err))
		j.missing = append(j.missing, o.Output)
		return
	}
	for _, w := range o.plan.Warnings {
		j.console.warn(o.Output + ": " + w)
	}
	if !j.flags.quiet {
		fmt.Fprintf(j.console.stderr, "%-40s %5.1f %% quantized, %s%s\n", printable(o.Output), 100*o.plan.Coverage, sizes(o.plan.InBytes, o.plan.OutBytes), j.calibrated(o))
	}
	if o.plan = nil; !j.flags.json {
		o.Plan, o.Report = nil, nil // they hold the structure of the model
	}
	j.Outputs = append(j.Outputs, *o)
}

// calibrated says what --calib did for an output that is written.
func (j *folderJob) calibrated(o *folderOutput) string {
	if len(j.flags.paths) == 0 || o.Report == nil {
		return ""
	}
	c := o.Report.Calibration
	if c == nil {
		return "; without the data of --calib"
	}
	text := fmt.Sprintf("; algorithm %s, %s compared with mse", cmp.Or(j.flags.opts.Algorithm, spec.Best), english.Plural(c.Layers, "calibrated layer", ""))
	if c.Refused {
		return text + ", which is better for all"
	}
	return text
}

// configure writes to a file of the folder how many files of external data each output has.
func (j *folderJob) configure(temp string) error {
	c := j.preset.Config
	if c == nil || !slices.Contains(j.source.Others, c.File) {
		return nil
	}
	counts := map[string]int{}
	for _, o := range j.Outputs {
		counts[path.Base(o.Output)] = max(counts[path.Base(o.Output)], len(o.data))
	}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	if len(counts) == 0 {
		return nil
	}
	var kept []string // float models with external data
	for _, m := range j.preset.Sources(j.source.Models) {
		if j.preset.Keep && len(j.source.Data[m]) > 0 {
			kept = append(kept, path.Base(m))
		}
	}
	return preset.SetCounts(filepath.Join(temp, filepath.FromSlash(c.File)), c.ExternalData, counts, kept)
}

// finish prints the report. The exit status is 1 if something is missing.
func (j *folderJob) finish() error {
	if j.flags.json {
		if err := j.console.json(j.folderReport); err != nil {
			return err
		}
	} else if j.flags.dryRun {
		for _, name := range j.Copied {
			fmt.Fprintf(j.console.stderr, "%-40s copied\n", printable(name))
		}
	}
	if len(j.Failed) > 0 {
		return errReported
	}
	return nil
}
