package main

import (
	"cmp"
	"fmt"

	"github.com/dustin/go-humanize/english"

	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
)

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

// fail names something that is not done; the rest of the folder is.
func (j *folderJob) fail(err error) {
	text := err.Error()
	j.console.fail(err)
	j.Failed = append(j.Failed, text)
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
