package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"onnxquant/internal/preset"
	"onnxquant/onnxq"
)

// Job converts the models of a folder to the outputs of a preset, and copies the other files. Failures
// are reported, and the rest is done.
type Job struct {
	Source  *Folder
	Preset  *preset.Preset
	Out     string // the folder to be made; may be "" for Plan
	Replace bool   // replace Out, if each file in it is from an earlier conversion or will be written again
	Link    bool   // link the other files instead of copying them
	Brief   bool   // leave plans and reports of single models out of the report: they are large

	// Options returns the options of an output of a model.
	Options func(ctx context.Context, m *Model, o preset.Output) (onnxq.Options, error)
	// Planned gets the plan of each output, before it is carried out. May be nil.
	Planned func(m *Model, o preset.Output, p *onnxq.Plan)
	// Settled is called when all outputs are made. If it returns an error, the folder is not written. May be nil.
	Settled func(made int) error

	Fail func(err error)      // gets each failure
	Warn func(text string)    // gets what the folder lacks
	Tell func(output *Output) // gets each output that is planned or made, with its Plan
	Busy Busy                 // gets the progress

	report  Summary
	missing []string // names of outputs that failed
	broken  []string // models that cannot be opened
	full    error    // the disk is full
}

// Busy shows the progress of the conversions of a model.
type Busy interface {
	Begin()
	Update(done, total int64)
	Clear()
}

// Summary lists the files of the new folder.
type Summary struct {
	Outputs []Output `json:"outputs"`          // models that were made
	Copied  []string `json:"copied"`           // other files
	Failed  []string `json:"failed,omitempty"` // missing files, with the reason
}

// Output is a model of the output.
type Output struct {
	Model  string        `json:"model"`            // in the input
	Output string        `json:"output"`           // in the output
	Plan   *onnxq.Plan   `json:"plan,omitempty"`   // of a dry run
	Report *onnxq.Report `json:"report,omitempty"` // of a conversion

	plan *onnxq.Plan // the plan that is, or was, executed
	err  error       // why it is not made, or nil
	data []string    // names of its external data files
}

// Carried is the plan that is, or was, executed. It is only set during Tell.
func (o *Output) Carried() *onnxq.Plan { return o.plan }

// Plan finds what Convert would do.
func (j *Job) Plan(ctx context.Context) (*Summary, error) {
	if err := j.begin(); err != nil {
		return nil, err
	}
	if j.Out != "" {
		if err := Check(j.Out, j.Replace, j.writes()); err != nil {
			return nil, err
		}
	}
	err := j.eachModel(ctx, false, func(outputs []*Output) {
		for _, o := range outputs {
			o.Plan = o.plan
			o.plan.OutBytes, o.err = o.plan.OutputSize(path.Base(o.Output))
		}
	})
	if err != nil {
		return nil, err
	}
	for _, name := range j.otherFiles() {
		j.report.Copied = append(j.report.Copied, j.placed(name))
	}
	j.warnNeeds()
	return &j.report, nil
}

// Convert makes the folder, completely or not at all.
func (j *Job) Convert(ctx context.Context) (*Summary, error) {
	if err := j.begin(); err != nil {
		return nil, err
	}
	target, err := Create(ctx, j.Out, j.Replace, j.writes())
	if err != nil {
		return nil, err
	}
	defer target.Abort()
	if err := j.Source.restrict(target.Temp); err != nil {
		return nil, err
	}
	err = j.eachModel(ctx, true, func(outputs []*Output) { j.write(ctx, outputs, target.Temp) })
	if err != nil {
		return nil, err
	}
	if len(j.report.Outputs) == 0 {
		return nil, fmt.Errorf("%s: nothing was converted, so no folder is written", j.Out)
	}
	for _, name := range j.missing {
		if _, err := os.Lstat(filepath.Join(j.Out, filepath.FromSlash(name))); err == nil {
			return nil, fmt.Errorf("%s: it is not replaced, because it has %s, which could not be converted again; remove that file, or choose another folder", j.Out, name)
		}
	}
	for _, name := range j.otherFiles() {
		placed := j.placed(name)
		if err := j.Source.Copy(ctx, name, filepath.Join(target.Temp, filepath.FromSlash(placed)), j.Link); err != nil {
			return nil, err
		}
		j.report.Copied = append(j.report.Copied, placed)
	}
	if err := j.configure(target.Temp); err != nil {
		j.fail(err)
	}
	if err := target.Commit(); err != nil {
		return &j.report, err
	}
	j.warnNeeds()
	return &j.report, nil
}

// begin checks the folders, and reports the files that are left out.
func (j *Job) begin() error {
	j.report = Summary{Outputs: []Output{}, Copied: []string{}}
	in := j.Source.Path
	if len(j.Source.Models) == 0 {
		return fmt.Errorf("%s: no .onnx file in the folder", in)
	}
	for _, p := range j.Source.Problems {
		j.fail(errors.New(p))
	}
	if j.Out != "" && !j.Source.alone && inside(j.Out, in) {
		return fmt.Errorf("%s: it would be inside the input folder; choose another folder", j.Out)
	}
	if j.Out != "" && inside(in, j.Out) {
		return fmt.Errorf("%s: it contains the input; choose another folder", j.Out)
	}
	return j.checkNeeds()
}

// fail names something that is not done.
func (j *Job) fail(err error) {
	j.Fail(err)
	j.report.Failed = append(j.report.Failed, err.Error())
}

// finished takes an output into the report.
func (j *Job) finished(o *Output) {
	if o.err != nil {
		j.fail(fmt.Errorf("%s: %w", o.Output, o.err))
		j.missing = append(j.missing, o.Output)
		return
	}
	j.Tell(o)
	if o.plan = nil; j.Brief {
		o.Plan, o.Report = nil, nil
	}
	j.report.Outputs = append(j.report.Outputs, *o)
}
